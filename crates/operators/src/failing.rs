//! Finding the record on which an expression fails. Expressions are evaluated over whole batches; a
//! batch that has failed is evaluated again in parts.

use std::ops::Range;

use crate::error::{Error, Result};

/// The first of `rows` rows with which `evaluate` fails, and its error; `None` if no single row
/// fails.
#[cold]
pub(crate) fn first_failing(
    rows: usize,
    evaluate: impl Fn(Range<usize>) -> Result<()>,
) -> Option<(usize, Error)> {
    let row = rows_before_failing(rows, &evaluate);
    evaluate(row..(row + 1).min(rows)).err().map(|error| (row, error))
}

/// The most rows, from the first on, that `evaluate` does not fail with. It fails with all of
/// `rows`.
#[cold]
pub(crate) fn rows_before_failing(
    rows: usize,
    evaluate: impl Fn(Range<usize>) -> Result<()>,
) -> usize {
    let (mut good, mut bad) = (0, rows);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        match evaluate(0..middle) {
            Ok(()) => good = middle,
            Err(_) => bad = middle,
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_is_found() {
        for failing in [vec![0], vec![6], vec![3, 4], vec![1, 6]] {
            let evaluate = |rows: Range<usize>| match failing.iter().find(|row| rows.contains(row))
            {
                Some(row) => Err(Error::Internal(format!("row {row}"))),
                None => Ok(()),
            };
            let (row, error) = first_failing(7, evaluate).expect("one of them fails");
            assert_eq!(
                (row, error.to_string().contains(&format!("row {row}"))),
                (failing[0], true)
            );
        }
        let together = |rows: Range<usize>| match rows.len() {
            ..3 => Ok(()),
            _ => Err(Error::Internal("too many".into())),
        };
        assert!(first_failing(7, together).is_none());
        assert!(first_failing(0, together).is_none());
    }
}
