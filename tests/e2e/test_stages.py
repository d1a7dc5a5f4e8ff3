"""What each stage of a query counts for itself."""

import pytest

EVENTS = """CREATE TABLE events (ts TIMESTAMP(3), v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'file', 'path' = 'events.csv', 'format' = 'csv');
CREATE TABLE {} (window_end TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE {} (window_end TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO tumbling SELECT window_end, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end;
INSERT INTO hopping SELECT window_end, COUNT(*) AS n
FROM TABLE(HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND))
GROUP BY window_start, window_end;
END;""".format("tumbling", "hopping")
# Seconds. Each leaves a watermark five seconds before it, if no other is later.
TIMES = [5, 12, 9.999, 15, 9, 10, 25.001, 19.999, 20, 1]


@pytest.mark.parametrize("words", [("--workers", 1), ("--workers", 3), ("--processes", 2)])
def test_late_records_are_counted_by_stage(script, words):
    """By hand. Ten seconds: 9, 19.999 and 1 come when their windows have ended. Twenty seconds, each ten: of the two
    windows of 9 and of 19.999 one has ended, and both of 1."""
    lines = "".join(f"2024-01-01 00:00:{time:06.3f},1\n" for time in TIMES)
    script.data("events.csv", "ts,v\n" + lines)
    result = script.run(EVENTS, *words)
    assert result.code == 0, result.stderr
    stages = [(of["late_records"], of["partly_late_records"]) for of in result.stats["stages"]]
    assert sorted(stages) == [(1, 2), (3, 0)], result.stats
    numbers = [of["stage"] for of in result.stats["stages"]]
    assert numbers == sorted(set(numbers)) and numbers[0] >= 1
    assert (result.stats["late_records"], result.stats["partly_late_records"]) == (4, 2)
