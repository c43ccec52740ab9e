"""The path of the network benchmark in SimPy (PyPI simpy 4.1.2): prints packets per CPU-second.

The peer of `cargo bench -p takt-net -- --simpy python3`, with the same numbers: ten flows of 400 bytes a
millisecond in EDF order, a bucket of 40 Mbit on a line of 1 Gbit beside a background, a link of 50 to
80 us, and a port of 100 Mbit with bursts of others.
"""

import heapq
import random
import time

import simpy

FLOWS, PERIOD, PACKETS = 10, 1_000_000, 50_000
BITS_PER_BYTE_NS = 8_000_000_000


def duration(size, rate):
    return -(-size * BITS_PER_BYTE_NS // rate)


class Egress:
    """The earliest deadline first through a bucket with HTB's rule, above a background."""

    RATE, BURST, LINE = 40_000_000, 1_000 * BITS_PER_BYTE_NS, 1_000_000_000

    def __init__(self, env, send):
        self.env, self.send, self.heap, self.came = env, send, [], env.event()
        self.tokens, self.at = self.BURST, 0
        env.process(self.run())

    def push(self, packet):
        heapq.heappush(self.heap, packet)
        if not self.came.triggered:
            self.came.succeed()

    def ready_in(self):
        self.tokens = min(self.BURST, self.tokens + self.RATE * (self.env.now - self.at))
        self.at = self.env.now
        return 0 if self.tokens >= 0 else -(self.tokens // self.RATE)

    def run(self):
        env = self.env
        while True:
            into = env.now % 10_000_000
            wait = self.ready_in() if self.heap else None
            if wait == 0:
                packet = heapq.heappop(self.heap)
                self.tokens -= 400 * BITS_PER_BYTE_NS
                yield env.timeout(duration(400, self.LINE))
                self.send(packet)
            elif into < 1_000_000:
                yield env.timeout(duration(1_500, self.LINE))
            else:
                self.came = env.event()
                idle = 10_000_000 - into
                yield env.timeout(idle if wait is None else min(wait, idle)) | self.came


def main():
    env, draw = simpy.Environment(), random.Random(7)
    done, line, left = env.event(), simpy.Resource(env, capacity=1), [0]
    last = [0]

    def through_port(packet, delay):
        yield env.timeout(delay + 10_000)
        with line.request() as turn:
            yield turn
            yield env.timeout(duration(400, 100_000_000))
        left[0] += 1
        if left[0] == PACKETS:
            done.succeed()

    def link(packet):
        arrival = max(last[0], env.now + draw.randint(50_000, 80_000))
        last[0] = arrival
        env.process(through_port(packet, arrival - env.now))

    def frame():
        with line.request() as turn:
            yield turn
            yield env.timeout(duration(1_500, 100_000_000))

    def others():
        while True:
            for _ in range(10):
                env.process(frame())
            yield env.timeout(duration(15_000, 40_000_000))

    egress = Egress(env, link)

    def flows():
        for number in range(0, PACKETS, FLOWS):
            for packet in range(number, number + FLOWS):
                egress.push((env.now + draw.randrange(PERIOD), packet))
            yield env.timeout(PERIOD)

    env.process(flows())
    env.process(others())
    before = time.process_time()
    env.run(until=done)
    print(PACKETS / (time.process_time() - before))


main()
