-- Query 13: bounded side input. Bids with what a file says of their auctions. The join is an
-- ordinary one, which runs where both sides end.

CREATE TABLE side_input (
    key BIGINT,
    `value` VARCHAR
) WITH (
    'connector' = 'filesystem',
    'path' = 'side_input.csv',
    'format' = 'csv'
);

CREATE TABLE nexmark_q13 (
    auction  BIGINT,
    bidder  BIGINT,
    price  BIGINT,
    `dateTime`  TIMESTAMP(3),
    `value`  VARCHAR
) WITH (
    'connector' = 'blackhole'
);

INSERT INTO nexmark_q13
SELECT
    B.auction,
    B.bidder,
    B.price,
    B.`dateTime`,
    S.`value`
FROM bid B
JOIN side_input AS S
ON mod(B.auction, 10000) = S.key;
