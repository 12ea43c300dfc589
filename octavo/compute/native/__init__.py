"""The kernels in native/ and what drives them. Without a compiler all of it goes unused."""
