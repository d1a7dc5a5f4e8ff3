-- Clicks per page and two seconds, from topic to topic, each row exactly once.
CREATE TABLE clicks (
    page STRING,
    ts TIMESTAMP(3) METADATA FROM 'timestamp',
    WATERMARK FOR ts AS ts - INTERVAL '0.5' SECOND
) WITH (
    'connector' = 'kafka',
    'topic' = 'clicks',
    'properties.bootstrap.servers' = '${env:KAFKA}',
    'properties.group.id' = 'demo',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'json'
);
CREATE TABLE counts (window_start TIMESTAMP(3), page STRING, n BIGINT) WITH (
    'connector' = 'kafka',
    'topic' = 'counts',
    'properties.bootstrap.servers' = '${env:KAFKA}',
    'sink.delivery-guarantee' = 'exactly-once',
    'sink.transactional-id-prefix' = 'demo',
    'format' = 'json'
);
INSERT INTO counts
SELECT window_start, page, COUNT(*)
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '2' SECOND))
GROUP BY window_start, window_end, page;
