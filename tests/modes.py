#!/usr/bin/env python3
"""Where passing rows through, aggregating them and exchanging records win, and what late merge chooses.

    tests/modes.py target/release/millstream [--workload cm] [--workers 1,2,4,8] [--repeats 1,4,16,64] [--turns 3]

For each number of workers and of records of a key in a window it runs late merge as it is, with each mode of fragments forced, and the
interleaved exchange, by turns, and prints medians of the ratios to late merge as it is: above 1 the other one is faster. A star marks
where a mode that was not chosen is more than 5% faster.
"""

import argparse
import statistics
import sys

from pairs import rate

# Of each workload: windows that its records are spread over.
WINDOWS = {"cm": 100, "nb7": 10, "ysb": 4}
MODES = {
    "pass-through": "--set fragment.mode=pass-through",
    "aggregate": "--set fragment.mode=aggregate",
    "exchange": "--exchange interleaved",
}


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--workload", choices=WINDOWS, default="cm")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--workers", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=numbers, default=[1, 4, 16, 64])
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    print(f"| workers | records per key | M records/s | {' | '.join(MODES)} |\n|---|---|---|{'---|' * len(MODES)}", flush=True)
    wrong = 0
    for workers in chosen.workers:
        for repeats in chosen.repeats:
            keys = max(chosen.records // WINDOWS[chosen.workload] // repeats, 1)
            command = f"{chosen.program} bench {chosen.workload} --records {chosen.records} --keys {keys} --workers {workers}"
            # With one worker there is nobody to pass rows to.
            modes = [mode for mode in MODES if workers > 1 or mode == "exchange"]
            own, others = [], {mode: [] for mode in modes}
            for _ in range(chosen.turns):
                own.append(rate(command))
                for mode in modes:
                    others[mode].append(rate(f"{command} {MODES[mode]}") / own[-1])
            cells = []
            for mode in MODES:
                ratio = statistics.median(others[mode]) if mode in others else None
                missed = ratio is not None and ratio > 1.05 and mode != "exchange"
                wrong += missed
                cells.append("" if ratio is None else f"{ratio:.2f}{'*' if missed else ''}")
            print(f"| {workers} | {repeats} | {statistics.median(own):.0f} | {' | '.join(cells)} |", flush=True)
    print(f"\n{wrong} choices cost more than 5%")
    return 0


if __name__ == "__main__":
    sys.exit(main())
