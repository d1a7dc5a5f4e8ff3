-- Query 9: winning bids. The winning bid of each auction, day by day: a rank is that of a window,
-- and so auctions meet the bids of their own day.

CREATE TABLE nexmark_q9 (
    id  BIGINT,
    itemName  VARCHAR,
    description  VARCHAR,
    initialBid  BIGINT,
    reserve  BIGINT,
    `dateTime`  TIMESTAMP(3),
    expires  TIMESTAMP(3),
    seller  BIGINT,
    category  BIGINT,
    extra  VARCHAR,
    auction  BIGINT,
    bidder  BIGINT,
    price  BIGINT,
    bid_dateTime  TIMESTAMP(3),
    bid_extra  VARCHAR
) WITH (
    'connector' = 'blackhole'
);

INSERT INTO nexmark_q9
SELECT
    id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra,
    auction, bidder, price, bid_dateTime, bid_extra
FROM (
    SELECT A.*, B.auction, B.bidder, B.price, B.`dateTime` AS bid_dateTime, B.extra AS bid_extra,
        ROW_NUMBER() OVER (
            PARTITION BY A.window_start, A.window_end, A.id
            ORDER BY B.price DESC, B.`dateTime` ASC) AS rownum
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '1' DAY)) A,
         TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '1' DAY)) B
    WHERE A.window_start = B.window_start AND A.window_end = B.window_end
      AND A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
)
WHERE rownum <= 1;
