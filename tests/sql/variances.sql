-- answer: by hand. The costs are 1, 2, 3, NULL, 5; then 6, 7, 8; then 9: four of them have the sum 11 and the sum of
-- squares 39, so n² times their variance is 4·39 − 11² = 35. One value has no variance of a sample.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

SELECT window_start,
       BIT_AND(cost) AS b_and, BIT_OR(cost) AS b_or, BIT_XOR(cost) AS b_xor,
       BOOL_AND(cost > 1) AS all_over_1, BOOL_OR(cost > 4) AS some_over_4, EVERY(kind = 'view') AS views,
       VAR_POP(cost) AS vp, VAR_SAMP(cost) AS vs, VARIANCE(cost) FILTER (WHERE cost <> 5) AS v,
       STDDEV_SAMP(cost) FILTER (WHERE kind <> 'buy') AS ss, STDDEV_POP(cost * 1.5) FILTER (WHERE cost > 7) AS sp
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
