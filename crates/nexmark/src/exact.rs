//! Arithmetic that gives the same digits on every machine.

/// `e^x` for `x` of -100 to 0: Taylor's series for what is left beside a power of two.
pub fn exp(x: f64) -> f64 {
    let q = (x / std::f64::consts::LN_2 - 0.5) as i64;
    let rest = x - q as f64 * std::f64::consts::LN_2;
    let mut series = 0.0;
    for coefficient in EXP {
        series = series * rest + coefficient;
    }
    series * f64::from_bits(((1023 + q) as u64) << 52)
}

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
