//! Numbers for people.

/// A number of bytes in its largest unit, of 1000: `950 B`, `12 kB`, `3.1 MB`.
pub fn bytes(number: u64) -> String {
    format!("{}B", scaled(number, [" ", " k", " M", " G", " T", " P", " E"]))
}

/// A number in its largest unit, of 1000, with at most three digits: `950`, `1.2k`, `31M`.
pub fn short(number: u64) -> String {
    scaled(number, ["", "k", "M", "G", "T", "P", "E"])
}

fn scaled(number: u64, units: [&str; 7]) -> String {
    let (mut unit, mut scale) = (0, 1u64);
    while number / scale >= 1_000 {
        scale *= 1_000;
        unit += 1;
    }
    let (whole, tenth) = (number / scale, number % scale * 10 / scale);
    match whole < 10 && unit > 0 {
        true => format!("{whole}.{tenth}{}", units[unit]),
        false => format!("{whole}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_never_too_large() {
        let all = [0, 7, 999, 1_000, 1_999, 12_345, 999_999, 1_000_000, u64::MAX];
        let expected = ["0", "7", "999", "1.0k", "1.9k", "12k", "999k", "1.0M", "18E"];
        assert_eq!(all.map(short), expected);
        assert_eq!(bytes(950), "950 B");
        assert_eq!(bytes(3_150_000), "3.1 MB");
    }
}
