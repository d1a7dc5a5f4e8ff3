-- No data at hand? The datagen connector makes some: a million page views of a thousand users, ten
-- microseconds apart. Without a window a bounded input is grouped as a whole, once, at its end.

CREATE TABLE views (
    user_id BIGINT,
    price DOUBLE,
    ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts
) WITH (
    'connector' = 'datagen',
    'number-of-rows' = '1000000',
    'seed' = '1',
    'fields.user_id.min' = '1',
    'fields.user_id.max' = '1000',
    'fields.price.min' = '0',
    'fields.price.max' = '100',
    'fields.ts.kind' = 'sequence',
    'fields.ts.start' = '2024-01-01 00:00:00',
    'fields.ts.step' = '10 us'
);

SELECT window_start, COUNT(*) AS views, AVG(price) AS mean_price
FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end;

SELECT user_id % 10 AS user_group, COUNT(*) AS views, MAX(price) AS highest FROM views
GROUP BY user_id % 10;
