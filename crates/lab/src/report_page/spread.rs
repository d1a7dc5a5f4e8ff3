//! The median of repeated measurements, and their spread.

use std::fmt;

/// The middle of some numbers, their least and their greatest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
    pub(super) count: usize,
}

impl Spread {
    /// None without numbers. All of them have to be finite.
    pub(super) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (least, greatest) = (*sorted.first()?, *sorted.last()?);
        let middle = |i: usize| sorted.get(i).copied().unwrap_or(greatest);
        let count = sorted.len();
        let median = (middle((count - 1) / 2) + middle(count / 2)) / 2.0;
        Some(Spread { median, least, greatest, count })
    }
}

/// `12.3 (11.9 to 13)`, only the median of a single number.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short(self.median))?;
        match self.count {
            1 => Ok(()),
            _ => write!(f, " ({} to {})", short(self.least), short(self.greatest)),
        }
    }
}

/// A number with three digits that count, without zeros behind the point.
pub(super) fn short(number: f64) -> String {
    let magnitude = match number.abs() {
        0.0 => 0,
        size => size.log10().floor().clamp(-9.0, 12.0) as i32,
    };
    let text = format!("{number:.*}", (2 - magnitude).max(0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middle_ones() {
        let spread = Spread::of([3.0, 1.0, 2.0]).expect("three numbers");
        assert_eq!(
            (spread.median, spread.least, spread.greatest, spread.count),
            (2.0, 1.0, 3.0, 3)
        );
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of([7.0]).map(|s| s.to_string()), Some("7".to_string()));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (number, text) in [
            (0.0, "0"),
            (12.345, "12.3"),
            (1234.5, "1234"),
            (0.012345, "0.0123"),
            (100.0, "100"),
            (0.5, "0.5"),
            (1e9, "1000000000"),
        ] {
            assert_eq!(short(number), text);
        }
    }
}
