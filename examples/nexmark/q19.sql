-- Query 19: the ten highest bids of each auction, day by day: a rank is that of a window.

CREATE TABLE nexmark_q19 (
    auction  BIGINT,
    bidder  BIGINT,
    price  BIGINT,
    channel  VARCHAR,
    url  VARCHAR,
    `dateTime`  TIMESTAMP(3),
    extra  VARCHAR,
    rank_number  BIGINT
) WITH (
    'connector' = 'blackhole'
);

INSERT INTO nexmark_q19
SELECT auction, bidder, price, channel, url, `dateTime`, extra, rank_number FROM
(SELECT *, ROW_NUMBER() OVER (
     PARTITION BY window_start, window_end, auction ORDER BY price DESC) AS rank_number
 FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '1' DAY)))
WHERE rank_number <= 10;
