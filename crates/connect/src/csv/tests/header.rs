//! Tests of the first record: whether it is a header, a record, or refused.

use DataType::{Boolean, Int64, Utf8};

use super::*;

/// Rows of the first line and another one, and whether a remark says what was decided; or what the
/// error says.
type Expected = std::result::Result<(usize, bool), &'static str>;

fn cases() -> Vec<(SchemaRef, &'static str, Expected)> {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let numbers = schema(&[("k", Int64, true), ("v", Int64, false)]);
    let mixed = schema(&[("k", Utf8, true), ("v", Boolean, true), ("ts", time.clone(), true)]);
    let texts = schema(&[("k", Utf8, true), ("v", Utf8, true)]);
    let times = schema(&[("ts", time, true)]);
    let cases = [
        // All columns are named, whatever stands beside them.
        (&numbers, "V,x,K", Ok((1, false))),
        (&texts, "v,k", Ok((1, false))),
        (&texts, "\" v\",k", Ok((1, false))),
        // A value that no name would be.
        (&numbers, "1,2", Ok((2, false))),
        (&numbers, ",2", Ok((2, false))),
        (&numbers, "x,2", Err(":1:1: expected BIGINT for column 'k', found 'x'")),
        (&numbers, "1e99,x", Err(":1:1: expected BIGINT for column 'k'")),
        (&mixed, "a,TRUE,2024-01-01 00:00:00", Ok((2, false))),
        (&texts, "a,-1.5", Ok((2, false))),
        (&times, "2024-01-01 00:00:00", Ok((2, false))),
        (&times, "1714564803", Err("BIGINT and compute the time from it")),
        // Nothing speaks for either.
        (&texts, "a,b", Ok((2, true))),
        (&texts, "a,", Ok((2, true))),
        (&mixed, "a,,", Ok((2, true))),
        // Some columns are named: a header with another name for the rest.
        (&numbers, "k,value", Err(":1:1: the header has no column 'v'")),
        (&numbers, "k,value", Err("'csv.header' = 'false'")),
        (&texts, "k,vv", Err("did you mean 'vv'?")),
        (&mixed, "k,true,time", Err("the header has no column 'v'")),
        (&texts, "v", Err("the header has no column 'k'")),
        // Or a record that has a column's name for a value.
        (&mixed, "v,TRUE,", Err(":1:1: the first line may be a header or a record")),
        (&mixed, "k,true,2024-01-01 00:00:00", Err("the name of column k, but not of v, ts")),
        (&texts, "k,5", Err("'csv.header' = 'true' and name the columns as it does")),
        (&texts, "k,5", Err("'csv.header' = 'false'")),
        // Neither.
        (&numbers, "a,b", Err(":1:1: the first line is neither a header")),
        (&numbers, "a,b", Err("nor a record: expected BIGINT for column 'k', found 'a'")),
        (&numbers, "a,b", Err("'csv.header' = 'true' and name the columns as it does")),
        (&mixed, "a,yes,never", Err(":1:3: the first line is neither a header")),
        (&numbers, "1;2", Err("nor a record: expected 2 fields, one for each column, found 1")),
        (&numbers, "1;2", Err("separated by ';'")),
        (&texts, "a,b,c", Err("nor a record: expected 2 fields, one for each column, found 3")),
    ];
    cases.into_iter().map(|(schema, first, expected)| (schema.clone(), first, expected)).collect()
}

#[test]
fn what_the_first_record_is_follows_from_names_and_values() {
    let numbers = schema(&[("k", Int64, true), ("v", Int64, false)]);
    for (schema, first, expected) in cases() {
        let schema = &schema;
        let rest = if first.contains(',') { first } else { "" };
        let again = match (first, schema.fields().len()) {
            ("V,x,K", _) => "1,x,2".to_string(),
            (_, 2) if *schema == numbers && expected.is_ok() => "1,2".into(),
            _ => rest.to_string(),
        };
        for skip_errors in [false, true] {
            let dialect = Dialect { skip_errors, ..Dialect::default() };
            let text = format!("{first}\n{again}\n");
            let table = in_memory("m.csv", &text, schema.clone(), &dialect);
            let opened = table.open(&[0], &OpenOptions::alone(100, 0, 1));
            let remark = opened.as_ref().ok().and_then(|splits| splits[0].remark()).is_some();
            let read = read(&text, schema, &dialect).map(|rows| (rows.num_rows(), remark));
            match (read, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{first}"),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{first}: {error}");
                }
                // A record that is malformed, where such are left out.
                (Ok((rows, false)), Err(said)) if skip_errors => {
                    assert!(rows < 2 && !said.contains("header"), "{first}");
                }
                (read, _) => panic!("{first}: {read:?}"),
            }
        }
    }
}
