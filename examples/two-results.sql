-- Two results from one reading of the trace. Per ten seconds: how many tasks were submitted, where they were many.
-- Per minute: how many in all, and in the busiest ten seconds. Both come from one view, which is computed once.
-- The minutes are printed; the bursts go to files in the directory 'bursts' beside this script, which must not hold an
-- earlier result.

CREATE TABLE task_events (
    time_s BIGINT,
    job_id BIGINT,
    task_index BIGINT,
    machine_id BIGINT,
    event_type INT,
    user_id BIGINT,
    scheduling_class INT,
    priority INT,
    cpu_request DOUBLE,
    memory_request DOUBLE,
    disk_request DOUBLE,
    different_machine INT,
    ts AS to_timestamp_seconds(time_s),
    WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH (
    'connector' = 'file',
    'path' = 'data/google-cluster-task-events-2011.csv',
    'format' = 'csv'
);

CREATE TABLE bursts (window_start TIMESTAMP(3), submitted BIGINT)
WITH ('connector' = 'file', 'path' = 'bursts', 'format' = 'csv');
CREATE TABLE minutes (window_start TIMESTAMP(3), submitted BIGINT, busiest BIGINT) WITH ('connector' = 'print');

CREATE VIEW per_10 AS
SELECT window_start AS start, window_time AS rowtime, COUNT(*) AS submitted
FROM TABLE(TUMBLE(TABLE task_events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
WHERE event_type = 0
GROUP BY window_start, window_end, window_time;

EXECUTE STATEMENT SET BEGIN
    INSERT INTO bursts SELECT start, submitted FROM per_10 WHERE submitted > 100;
    INSERT INTO minutes
        SELECT window_start, SUM(submitted), MAX(submitted)
        FROM TABLE(TUMBLE(TABLE per_10, DESCRIPTOR(rowtime), INTERVAL '1' MINUTE))
        GROUP BY window_start, window_end;
END;
