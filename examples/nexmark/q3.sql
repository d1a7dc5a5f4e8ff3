-- Query 3: local item suggestion. Who sells in Oregon, Idaho or California, in category 10?
-- The join keeps all rows that it may need again. Where the events do not end, bound that before it:
-- SET 'join.within' = '1 hour';

CREATE TABLE nexmark_q3 (
    name  VARCHAR,
    city  VARCHAR,
    state  VARCHAR,
    id  BIGINT
) WITH (
    'connector' = 'blackhole'
);

INSERT INTO nexmark_q3
SELECT
    P.name, P.city, P.state, A.id
FROM
    auction AS A INNER JOIN person AS P on A.seller = P.id
WHERE
    A.category = 10 and (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA');
