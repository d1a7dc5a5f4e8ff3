-- Windows alone: neither a key nor an aggregate.
-- answer: a row for each of three windows of three seconds.
CREATE TABLE events (ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'datagen', 'number-of-rows' = '9000', 'fields.ts.kind' = 'sequence',
      'fields.ts.start' = '2024-01-01 00:00:00', 'fields.ts.step' = '1 ms');
SELECT window_start FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '3' SECOND))
GROUP BY window_start, window_end;
