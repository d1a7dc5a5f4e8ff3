//! Functions of other engines without a counterpart here: the reason, and alternatives.

/// Why a well-known function is not here, and what to use instead.
// tidy: long function: one arm per function
pub(crate) fn reason(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "tumble" | "hop" | "session" => (
            "stands in FROM, not among expressions",
            "write FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))\n\
             GROUP BY window_start, window_end",
        ),
        "cumulate" => (
            "stands in FROM alone",
            "write FROM TABLE(CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL \
             '1' HOUR))\nGROUP BY window_start, window_end",
        ),
        "cumulate_start" | "cumulate_end" | "cumulate_rowtime" => (
            "does not exist: CUMULATE stands in FROM alone",
            "TABLE(CUMULATE(…)) in FROM gives window_start, window_end and window_time",
        ),
        "tumble_proctime" | "hop_proctime" | "session_proctime" | "cumulate_proctime" => (
            "does not exist here: a query does not know when a window fires",
            "a window in FROM gives window_time, its last millisecond, of event time",
        ),
        "tumble_start" | "tumble_end" | "tumble_rowtime" => (
            "goes with GROUP BY TUMBLE(…), and this query has none",
            "add GROUP BY TUMBLE(ts, INTERVAL '10' SECOND); a window in FROM gives window_start, \
             window_end and window_time",
        ),
        "hop_start" | "hop_end" | "hop_rowtime" => (
            "goes with GROUP BY HOP(…), and this query has none",
            "add GROUP BY HOP(ts, INTERVAL '1' SECOND, INTERVAL '10' SECOND); a window in FROM \
             gives window_start, window_end and window_time",
        ),
        "session_start" | "session_end" | "session_rowtime" => (
            "goes with GROUP BY SESSION(…), and this query has none",
            "add GROUP BY SESSION(ts, INTERVAL '10' SECOND); a window in FROM gives window_start, \
             window_end and window_time",
        ),
        "descriptor" => ("stands inside a window function only", ""),
        "rand" | "random" | "rand_integer" | "uuid" | "gen_random_uuid" => (
            "does not run here: the same records must give the same results",
            "derive the value from a column, for example MOD(id, 10)",
        ),
        "date_diff" => ("does not exist here", "write for example TIMESTAMPDIFF(DAY, a, b)"),
        "date_add" | "date_sub" => {
            ("does not exist here", "write for example ts + INTERVAL '1' DAY")
        }
        "current_row_timestamp" => {
            ("does not exist here", "write CURRENT_TIMESTAMP: the time at which the query started")
        }
        "var" => ("does not exist here", "write VAR_SAMP(x), or VAR_POP(x)"),
        "collect" | "median" | "percentile" | "approx_percentile_cont" => {
            ("does not exist here", "APPROX_PERCENTILE(x, 0.5), ARRAY_AGG(x) and LISTAGG(x) run")
        }
        "percentile_cont" | "percentile_disc" => {
            ("does not exist here", "write APPROX_PERCENTILE(x, 0.5)")
        }
        "approx_distinct" => ("does not exist here", "write APPROX_COUNT_DISTINCT(x)"),
        "approx_top_count" | "approx_top_sum" | "mode" => {
            ("does not exist here", "APPROX_TOP_K(x, 10) gives the most frequent values")
        }
        "row_number" | "rank" | "dense_rank" => ("needs OVER", crate::stages::ranking::FORM),
        "lag" | "lead" | "ntile" => {
            ("does not run here: it needs OVER", "aggregate over a window instead")
        }
        name if name.starts_with("json_") || name == "is_json" => (
            "does not exist here",
            "JSON_VALUE(x, '$.a'), JSON_EXISTS(x, '$.a') and x IS JSON look into a text",
        ),
        "crc32" | "hash" | "hash_code" | "murmurhash" => {
            ("does not exist here", "write MD5(x) or SHA256(x), which give a text")
        }
        "unnest" => (
            "stands in FROM, not among expressions",
            "write FROM t CROSS JOIN UNNEST(t.items) AS u (item)",
        ),
        name if name.starts_with("array") || name.starts_with("map_") => (
            "does not exist here",
            "write array[1], map['key'], CARDINALITY(x), ELEMENT(array), ARRAY[…], MAP[…], ROW(…)",
        ),
        "grouping" | "grouping_id" | "group_id" => ("does not run here", ""),
        "date_format" => (
            "takes a time and a pattern in quotes",
            "write for example DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm')",
        ),
        _ => return None,
    })
}
