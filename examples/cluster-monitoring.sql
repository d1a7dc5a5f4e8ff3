-- Cluster monitoring: the mean CPU request per job in windows of two seconds, over the first minutes of
-- Google's cluster trace of 2011 (data/README.md says where it comes from).

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

SELECT window_start, job_id, AVG(cpu_request) AS cpu
FROM TABLE(TUMBLE(TABLE task_events, DESCRIPTOR(ts), INTERVAL '2' SECOND))
GROUP BY window_start, window_end, job_id;
