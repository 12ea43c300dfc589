"""Who runs and who waits, both in rank order, and the seats of those who run. Decides nothing."""

from __future__ import annotations

from bisect import insort

from octavo.core.request import Request


def rank(request: Request) -> tuple[int, int, int]:
    return request.rank


class Roster:
    """A seat is a running request's stable index in [0, max_num_seqs)."""

    def __init__(self, max_num_seqs: int) -> None:
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self._max_seqs = max_num_seqs
        self._free_seats = list(range(max_num_seqs - 1, -1, -1))
        self._vacated: list[int] = []

    @property
    def seats_left(self) -> int:
        return len(self._free_seats)

    def queue(self, request: Request) -> None:
        insort(self.waiting, request, key=rank)

    def seat(self, waiting_at: int, running_at: int) -> None:
        """Move a waiting request to where its rank belongs among the running."""
        request = self.waiting.pop(waiting_at)
        request.seat = self._free_seats.pop()
        self.running.insert(running_at, request)

    def vacate(self, request: Request) -> None:
        """Give up the request's seat, if it has one."""
        if request.seat >= 0:
            self._vacated.append(request.seat)
            self._free_seats.append(request.seat)
            request.seat = -1

    def remove(self, request: Request) -> None:
        (self.running if request.seat >= 0 else self.waiting).remove(request)

    def drop_finished(self) -> None:
        self.running[:] = [request for request in self.running if request.finish is None]

    def vacated(self) -> list[int]:
        """Seats given up since `settled`."""
        return list(self._vacated)

    def settled(self) -> None:
        """A step that carried `vacated` has been run."""
        self._vacated.clear()

    def check(self) -> None:
        for queue in (self.running, self.waiting):
            ranks = [request.rank for request in queue]
            assert ranks == sorted(ranks)
        assert all(request.table is None for request in self.waiting)
        assert all(request.table is not None for request in self.running)
        seats = [request.seat for request in self.running]
        assert sorted(seats + self._free_seats) == list(range(self._max_seqs))
