-- answer: by hand. Against the second, the cost is x + 1, then x − 4, then one point, which has no line. Against the
-- cost, the length of the kind has, in the first window, n·Sxy = 4·44 − 11·17 = −11, n·Sxx = 35 and n·Syy = 11. The
-- record without a cost takes no part.
CREATE TABLE clicks (
    ts TIMESTAMP(3), user_name STRING, kind STRING, cost INT, WATERMARK FOR ts AS ts
) WITH ('connector' = 'file', 'path' = 'data/clicks.csv', 'format' = 'csv');

CREATE VIEW points AS SELECT ts, EXTRACT(SECOND FROM ts) AS x, cost AS y, CHAR_LENGTH(kind) AS z FROM clicks;

SELECT window_start,
       REGR_COUNT(y, x) AS n, REGR_AVGX(y, x) AS avgx, REGR_AVGY(y, x) AS avgy,
       REGR_SXX(y, x) AS sxx, REGR_SYY(y, x) AS syy, REGR_SXY(y, x) AS sxy,
       REGR_SLOPE(y, x) AS slope, REGR_INTERCEPT(y, x) AS intercept, REGR_R2(y, x) AS r2,
       CORR(y, x) AS corr, COVAR_POP(y, x) AS cp, COVAR_SAMP(y, x) AS cs,
       REGR_SLOPE(z, y) AS z_slope, REGR_INTERCEPT(z, y) AS z_intercept, REGR_R2(z, y) AS z_r2
FROM TABLE(TUMBLE(TABLE points, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
