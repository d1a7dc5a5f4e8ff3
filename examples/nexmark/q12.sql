-- Query 12: windows of processing time. How many bids does a user make in ten seconds of the clock?
-- The time at which a record is read is a column of a table without a watermark.

CREATE TABLE arriving (p_time AS PROCTIME()) LIKE nexmark (EXCLUDING WATERMARKS);

CREATE TABLE nexmark_q12 (
    bidder BIGINT,
    bid_count BIGINT,
    starttime TIMESTAMP(3),
    endtime TIMESTAMP(3)
) WITH (
    'connector' = 'blackhole'
);

CREATE VIEW B AS SELECT bid.bidder, p_time FROM arriving WHERE event_type = 2;

INSERT INTO nexmark_q12
SELECT
    bidder,
    count(*) as bid_count,
    window_start AS starttime,
    window_end AS endtime
FROM TABLE(
    TUMBLE(TABLE B, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
