-- Which users keep the cluster busy? Per minute and user: how many tasks they submitted, how many of their
-- tasks failed or were evicted, and the memory they asked for; only users with at least 100 events.

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

SELECT window_start,
       user_id,
       COUNT(*) AS events,
       COUNT(*) FILTER (WHERE event_type = 0) AS submitted,
       COUNT(*) FILTER (WHERE event_type IN (2, 3)) AS lost,
       SUM(memory_request) FILTER (WHERE event_type = 0) AS memory_asked,
       MAX(priority) AS highest_priority
FROM TABLE(TUMBLE(TABLE task_events, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, user_id
HAVING COUNT(*) >= 100;
