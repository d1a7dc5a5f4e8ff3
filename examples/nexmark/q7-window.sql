-- Query 7: highest bid, as a join of windows, which also runs over a stream without an end.

CREATE TABLE nexmark_q7 (
    auction  BIGINT,
    bidder  BIGINT,
    price  BIGINT,
    `dateTime`  TIMESTAMP(3),
    extra  VARCHAR
) WITH (
    'connector' = 'blackhole'
);

INSERT INTO nexmark_q7
SELECT B.auction, B.bidder, B.price, B.`dateTime`, B.extra
FROM TABLE(
    TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) B
JOIN (
    SELECT MAX(price) AS maxprice, window_start, window_end
    FROM TABLE(
        TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) B1
ON B.price = B1.maxprice AND B.window_start = B1.window_start AND B.window_end = B1.window_end;
