//! A fuzz target: any text gets an answer. The input is a corpus, and mutations of it from a fixed
//! seed.

use millstream_sql::fuzz_sql;

const CORPUS: &[&str] = &[
    "SELECT window_start, k, SUM(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' \
     SECOND)) GROUP BY window_start, window_end, k HAVING SUM(v) > 1",
    "WITH c AS (SELECT k, s FROM w WHERE s LIKE 'a%') SELECT DISTINCT s FROM c",
    "CREATE TABLE x (a INT NOT NULL, b AS a + 1, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - \
     INTERVAL '5' SECOND) WITH ('connector' = 'file', 'path' = 'x'); \
     SELECT b FROM x LIMIT 3 OFFSET 1",
    "SELECT CASE WHEN b THEN d ELSE 1.5 END, COUNT(*) FILTER (WHERE v IS NULL) FROM t GROUP BY 1",
    "SET 'workers' = '4'; EXPLAIN SELECT * FROM t; DROP VIEW IF EXISTS w",
    "SELECT DATE_FORMAT(ts, 'yyyy'), YEAR(day), CAST('1' AS TIMESTAMP(9)), X'00', U&'\\0041' \
     FROM t",
    "INSERT INTO t (k) SELECT GREATEST(k, 1) % 3 FROM t WHERE k BETWEEN -1 AND 9223372036854775807",
    "SELECT * FROM TABLE(TUMBLE(DATA => TABLE w, TIMECOL => DESCRIPTOR(ts), SIZE => \
     INTERVAL '1' DAY))",
    "/* c */ SELECT -- d\n `k`, \"v\" FROM t AS u (a, b, c, d, e, f, g) \
     WHERE u.a IS NOT DISTINCT FROM NULL",
    "SELECT k, s FROM (SELECT k, s FROM t UNION ALL SELECT k + 1, NULL FROM w) WHERE k > 1 UNION \
     SELECT COUNT(*), UPPER(s) FROM w GROUP BY s ORDER BY 1 LIMIT 3",
    "EXPLAIN STATEMENT SET BEGIN INSERT INTO t (k) SELECT k FROM w; INSERT INTO t (v) SELECT v \
     FROM t WHERE CASE WHEN b THEN 1 END = 1; END; SELECT 1",
    "BEGIN STATEMENT SET; INSERT INTO t (k) SELECT k FROM w UNION ALL SELECT k FROM t; END",
    "SELECT window_end, k, COUNT(v) FROM TABLE(SESSION(TABLE t PARTITION BY (k, s), DESCRIPTOR(ts), \
     INTERVAL '1' SECOND)) WHERE v > 1 GROUP BY window_start, window_end, k, s",
    "SELECT * FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), SLIDE => INTERVAL '1' SECOND, SIZE => INTERVAL \
     '1' MINUTE, OFFSET => INTERVAL '-1' HOUR)) WHERE window_end > ts",
    "SELECT SESSION_START(ts, INTERVAL '1' SECOND), k FROM t GROUP BY SESSION(ts, INTERVAL '1' \
     SECOND), k HAVING SESSION_ROWTIME(ts, INTERVAL '1' SECOND) > ts",
    "SELECT SPLIT_INDEX(s, ',', 99999999999), REGEXP_EXTRACT(s, '(', 0) FROM t",
];

/// The same numbers in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n.max(1)
    }
}

#[test]
fn the_corpus_is_answered() {
    let executed: usize = CORPUS.iter().map(|text| fuzz_sql(text)).sum();
    // Two statements set up each run; most of the corpus runs.
    assert!(executed > 2 * CORPUS.len() + 8, "{executed}");
    for text in
        ["", ";", "\0", "'", "\"", "/*", "--", "(", "é", "SELECT", "\u{FEFF}SELECT 1", "1;2"]
    {
        fuzz_sql(text);
    }
}

#[test]
fn mutations_are_answered() {
    let mut random = Random(0x5EED);
    let words: Vec<&str> = CORPUS.iter().flat_map(|text| text.split(' ')).collect();
    for _ in 0..1500 {
        let mut text: Vec<&str> = CORPUS[random.below(CORPUS.len())].split(' ').collect();
        for _ in 0..1 + random.below(4) {
            let at = random.below(text.len());
            match random.below(4) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, words[random.below(words.len())]),
                2 => text[at] = words[random.below(words.len())],
                _ => {
                    let other = random.below(text.len());
                    text.swap(at, other);
                }
            }
            if text.is_empty() {
                break;
            }
        }
        let mut text = text.join(" ");
        if random.below(3) == 0 && !text.is_empty() {
            let cut = random.below(text.len());
            if let Some((at, c)) = text.char_indices().find(|(i, _)| *i >= cut) {
                text.replace_range(
                    at..at + c.len_utf8(),
                    ["", "'", "\0", "(", "é"][random.below(5)],
                );
            }
        }
        fuzz_sql(&text);
    }
}
