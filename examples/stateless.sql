-- A query without state: rows pass through one by one, in the file's order. LIMIT would end it
-- earlier if there were more than ten such tasks; there are six.

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

CREATE VIEW large_tasks AS
SELECT ts, job_id, task_index, cpu_request * 100 AS cpu_percent,
       CASE event_type WHEN 0 THEN 'submitted' WHEN 1 THEN 'scheduled' ELSE 'ended' END AS what
FROM task_events
WHERE cpu_request > 0.2;

SELECT ts, job_id, task_index, what, cpu_percent FROM large_tasks LIMIT 10;
