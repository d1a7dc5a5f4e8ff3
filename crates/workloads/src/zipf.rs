//! Keys with a Zipf distribution: the same draws, exactly, on every machine.
//!
//! Rank `r` (from 1) of `n` has the weight `r^-z`, as an integer; all weights together are about
//! 2^62. A draw is looked up in the table of cumulative weights, so frequencies are right to 2^-60
//! of all draws. No function of a mathematics library is called, since the last digits of these
//! differ between machines. The power is computed from additions, multiplications and divisions,
//! which IEEE 754 rounds alike everywhere.
//!
//! The weights follow from `z` and `n`. With `H = Σ r^-z` (doubles, added from `r = 1` on), `s` is
//! the greatest integer with `2^s H ≤ 2^62`, and the weight of rank `r` is `⌊2^s r^-z⌋`. A draw `u`
//! of 64 bits gives the first rank whose cumulative weight exceeds `⌊u W / 2^64⌋`, where `W` is the
//! sum of all weights. Rank `r` is then the key `((r - 1) * 2654435761 + 2654435769) mod n`, so
//! neighbours in rank are far apart as keys.

use std::fmt;
use std::str::FromStr;

/// The most keys that a Zipf distribution can have: its table takes 8 bytes for each, and up to 32
/// MB besides.
pub const ZIPF_KEYS_MAX: u64 = 1 << 27;

/// The exponent `z` of a Zipf distribution, 0 (uniform) to 3, in steps of a thousandth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Zipf {
    thousandths: u32,
}

impl Zipf {
    /// The exponent.
    pub fn exponent(self) -> f64 {
        f64::from(self.thousandths) / 1000.0
    }
}

/// Why a text is no exponent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoZipf(String);

impl fmt::Display for NoZipf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "expected 0 to 3 with at most three decimals, for example 0.8; found '{}'",
            self.0
        )
    }
}

impl std::error::Error for NoZipf {}

impl FromStr for Zipf {
    type Err = NoZipf;

    fn from_str(text: &str) -> Result<Zipf, NoZipf> {
        let no = || NoZipf(text.chars().take(40).collect());
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str, most: usize| {
            (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
        };
        if !digits(whole, 1) || !digits(decimals, 3) {
            return Err(no());
        }
        let thousandths: u32 = format!("{whole}{decimals:0<3}").parse().map_err(|_| no())?;
        if thousandths > 3000 { Err(no()) } else { Ok(Zipf { thousandths }) }
    }
}

/// How finely draws are looked up before the search, at the most: by so many leading bits.
const GUIDE_BITS_MAX: u32 = 22;

/// Keys to draw from.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The weights of ranks up to this one, this one included.
    cumulative: Vec<u64>,
    /// Where the search starts: the first rank whose cumulative weight exceeds `i << shift`.
    guide: Vec<u32>,
    shift: u32,
}

impl Keys {
    /// The table for `keys` keys, at least one and at most [`ZIPF_KEYS_MAX`].
    pub(crate) fn new(zipf: Zipf, keys: u64) -> Keys {
        let keys = keys.clamp(1, ZIPF_KEYS_MAX);
        let cumulative = cumulative(zipf.exponent(), keys);
        let total = cumulative[cumulative.len() - 1];
        let bits = (keys.ilog2() + 2).min(GUIDE_BITS_MAX);
        let shift = (u64::BITS - total.leading_zeros()).saturating_sub(bits);
        let mut rank = 0;
        let guide = (0..=total >> shift).map(|i| {
            while cumulative[rank] <= i << shift && rank + 1 < cumulative.len() {
                rank += 1;
            }
            rank as u32
        });
        Keys { guide: guide.collect(), cumulative, shift }
    }

    /// The key that the random number `r` means.
    #[inline]
    pub(crate) fn key(&self, r: u64) -> u64 {
        scatter(self.rank(r), self.cumulative.len() as u64)
    }

    /// A rank, from 0.
    fn rank(&self, r: u64) -> u64 {
        let total = self.cumulative[self.cumulative.len() - 1];
        let target = ((u128::from(r) * u128::from(total)) >> 64) as u64;
        let at = (target >> self.shift) as usize;
        let first = self.guide[at] as usize;
        let last = self.guide.get(at + 1).map_or(self.cumulative.len() - 1, |rank| *rank as usize);
        let within = self.cumulative[first..=last].partition_point(|sum| *sum <= target);
        (first + within) as u64
    }
}

/// Maps ranks to different keys: 2654435761 is a prime above [`ZIPF_KEYS_MAX`], so it divides no
/// number of keys.
#[inline]
pub(crate) fn scatter(rank: u64, keys: u64) -> u64 {
    (rank * 2_654_435_761 + 2_654_435_769) % keys
}

/// The integer weights of all ranks, added up.
fn cumulative(z: f64, keys: u64) -> Vec<u64> {
    let powers: Vec<f64> = (1..=keys).map(|rank| inverse_power(rank, z)).collect();
    let scale = scale(powers.iter().sum());
    let mut sum = 0;
    powers
        .into_iter()
        .map(|power| {
            sum += (power * scale) as u64;
            sum
        })
        .collect()
}

/// The greatest power of two that makes at most 2^62 of `sum`, which is 1 at least.
fn scale(sum: f64) -> f64 {
    let mut scale = (1u64 << 62) as f64;
    while scale * sum > (1u64 << 62) as f64 {
        scale /= 2.0;
    }
    scale
}

/// `rank^-z` for a rank of 1 to 2^53, right to about 14 digits, the same on every machine.
pub(crate) fn inverse_power(rank: u64, z: f64) -> f64 {
    exp(-z * ln(rank))
}

/// The natural logarithm: of `m` in [0.7, 1.4] by the series of the inverse hyperbolic tangent,
/// where `rank = m 2^k`.
fn ln(rank: u64) -> f64 {
    let mut k = f64::from(rank.ilog2());
    let mut m = rank as f64 / (1u64 << rank.ilog2()) as f64;
    if m > 1.4 {
        m /= 2.0;
        k += 1.0;
    }
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut series = 0.0;
    for coefficient in LN {
        series = series * square + coefficient;
    }
    k * std::f64::consts::LN_2 + 2.0 * s * series
}

/// `e^x` for `x` of -100 to 0: Taylor's series for what is left beside a power of two.
pub(crate) fn exp(x: f64) -> f64 {
    let q = (x / std::f64::consts::LN_2 - 0.5) as i64;
    let rest = x - q as f64 * std::f64::consts::LN_2;
    let mut series = 0.0;
    for coefficient in EXP {
        series = series * rest + coefficient;
    }
    series * f64::from_bits(((1023 + q) as u64) << 52)
}

/// `1 / (2j + 1)`, the highest first: what is left out is below 1e-17 of the sum.
const LN: [f64; 12] = {
    let mut coefficients = [0.0; 12];
    let mut j = 0;
    while j < 12 {
        coefficients[11 - j] = 1.0 / (2 * j + 1) as f64;
        j += 1;
    }
    coefficients
};

/// `1 / j!`, the highest first: what is left out is below 1e-17.
const EXP: [f64; 15] = {
    let mut coefficients = [0.0; 15];
    let mut factorial = 1u64;
    let mut j = 0;
    while j < 15 {
        if j > 0 {
            factorial *= j as u64;
        }
        coefficients[14 - j] = 1.0 / factorial as f64;
        j += 1;
    }
    coefficients
};

#[cfg(test)]
mod tests {
    use super::*;

    fn zipf(text: &str) -> Zipf {
        text.parse().expect("an exponent")
    }

    /// Draws as the generator makes them.
    fn draws(count: usize) -> impl Iterator<Item = u64> {
        let mut s: u64 = 0x9E3779B97F4A7C15;
        std::iter::repeat_with(move || {
            s ^= s >> 12;
            s ^= s << 25;
            s ^= s >> 27;
            s.wrapping_mul(0x2545F4914F6CDD1D)
        })
        .take(count)
    }

    #[test]
    fn exponents_are_read_exactly() {
        for (text, exponent) in [("0", 0.0), ("0.2", 0.2), ("1.05", 1.05), ("2.0", 2.0), ("3", 3.0)]
        {
            assert_eq!(zipf(text).exponent(), exponent, "{text}");
        }
        for text in
            ["", ".", "1.", ".5", "-1", "+1", "3.001", "4", "0.1234", "1e1", "NaN", "inf", "١"]
        {
            let error = text.parse::<Zipf>().expect_err(text).to_string();
            assert!(error.starts_with("expected 0 to 3 with"), "{error}");
        }
    }

    #[test]
    fn powers_agree_with_the_mathematics_library() {
        for z in [0.0, 0.001, 0.2, 0.999, 1.0, 1.5, 2.0, 3.0] {
            let ranks = (1..2000).chain([4095, 4096, 10_000_000, 99_999_989, 1 << 27]);
            for rank in ranks {
                let (ours, theirs) = (inverse_power(rank, z), (rank as f64).powf(-z));
                assert!((ours / theirs - 1.0).abs() < 1e-13, "{rank}^-{z}: {ours} and {theirs}");
            }
        }
        assert!((1..1000).all(|rank| inverse_power(rank, 0.0) == 1.0));
    }

    #[test]
    fn weights_are_those_of_the_distribution() {
        for (z, keys) in
            [(0.0, 1000), (0.5, 100_000), (1.0, 10_000), (2.0, 12_500), (3.0, 5), (1.0, 1)]
        {
            let sums = cumulative(z, keys);
            let total = sums[sums.len() - 1] as f64;
            let harmonic: f64 = (1..=keys).rev().map(|rank| (rank as f64).powf(-z)).sum();
            let mut before = 0;
            for (rank, sum) in (1..).zip(&sums) {
                let (share, right) =
                    ((sum - before) as f64 / total, (rank as f64).powf(-z) / harmonic);
                assert!((share - right).abs() < 1e-13, "rank {rank} of {keys}, z = {z}");
                before = *sum;
            }
        }
    }

    #[test]
    fn a_draw_is_the_first_rank_above_it() {
        for (z, keys) in [("0", 1), ("0", 1000), ("0.2", 70_000), ("1", 100_003), ("3", 1_000_000)]
        {
            let table = Keys::new(zipf(z), keys);
            let total = u128::from(table.cumulative[keys as usize - 1]);
            for r in draws(2000).chain([0, 1, u64::MAX - 1, u64::MAX]) {
                let target = ((u128::from(r) * total) >> 64) as u64;
                let rank = table.cumulative.iter().position(|sum| *sum > target);
                assert_eq!(Some(table.rank(r) as usize), rank, "z = {z}, {keys} keys, draw {r}");
            }
        }
    }

    /// Pearson's statistic over the first ranks, each with at least 50 draws expected, and all
    /// others together.
    #[test]
    fn frequencies_fit_the_theory() {
        const DRAWS: usize = 400_000;
        for (z, keys) in [("0", 1000), ("0.2", 1000), ("0.8", 2000), ("1", 100_000), ("2", 1 << 20)]
        {
            let table = Keys::new(zipf(z), keys);
            let exponent = zipf(z).exponent();
            let harmonic: f64 = (1..=keys).rev().map(|rank| (rank as f64).powf(-exponent)).sum();
            let expected: Vec<f64> = (1..=keys)
                .map(|rank| DRAWS as f64 * (rank as f64).powf(-exponent) / harmonic)
                .take_while(|expected| *expected >= 50.0)
                .collect();
            let mut found = vec![0u32; expected.len() + 1];
            for r in draws(DRAWS) {
                found[(table.rank(r) as usize).min(expected.len())] += 1;
            }
            let rest = DRAWS as f64 - expected.iter().sum::<f64>();
            let mut square = 0.0;
            let mut cells = 0.0;
            for (expected, found) in expected.iter().chain([&rest]).zip(&found) {
                if *expected >= 50.0 {
                    square += (f64::from(*found) - expected).powi(2) / expected;
                    cells += 1.0;
                }
            }
            // The mean of the statistic is one less than the cells, its variance twice that.
            let degrees: f64 = cells - 1.0;
            let beyond = (square - degrees) / (2.0 * degrees).sqrt();
            assert!(beyond.abs() < 4.5, "z = {z}: {square:.1} of {degrees} degrees of freedom");
        }
    }

    #[test]
    fn ranks_and_keys_are_one_to_one() {
        for keys in [1, 2, 3, 977, 10_000, 12_500, 1 << 16] {
            let mut seen = vec![false; keys as usize];
            for rank in 0..keys {
                assert!(!std::mem::replace(&mut seen[scatter(rank, keys) as usize], true));
            }
        }
    }
}
