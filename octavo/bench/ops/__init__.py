"""The kernels' ops, one by one: what each computes, how exactly, and what it costs."""
