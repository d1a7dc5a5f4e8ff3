//! When events happen: at one rate, or at rates that come again and again.

use crate::config::{Config, Shape};

/// Steps of a sine.
const SINE_STEPS: u64 = 10;

/// The cosine of each step of a sine: rates are rounded, so these digits suffice.
const COSINES: [f64; SINE_STEPS as usize] = [
    1.0,
    0.809_016_994_374_947_5,
    0.309_016_994_374_947_5,
    -0.309_016_994_374_947_5,
    -0.809_016_994_374_947_5,
    -1.0,
    -0.809_016_994_374_947_5,
    -0.309_016_994_374_947_5,
    0.309_016_994_374_947_5,
    0.809_016_994_374_947_5,
];

/// When the event of a number happens.
#[derive(Debug, Clone)]
pub struct Times {
    base_ms: i64,
    /// The rates, in turn, in events per second.
    rates: Vec<u64>,
    /// How long each lasts.
    step_s: u64,
    /// Events of all steps.
    cycle: u64,
}

impl Times {
    /// The times of a configuration.
    pub fn new(config: &Config) -> Times {
        let (first, next) = (config.first_rate.max(1), config.next_rate.max(1));
        let rates = match config.shape {
            _ if first == next => vec![first],
            Shape::Square => vec![first, next],
            Shape::Sine => {
                let middle = (first as f64 + next as f64) / 2.0;
                let swing = (first as f64 - next as f64) / 2.0;
                COSINES.iter().map(|cosine| (middle + swing * cosine).round() as u64).collect()
            }
        };
        let steps = match config.shape {
            Shape::Square => 2,
            Shape::Sine => SINE_STEPS,
        };
        let step_s = config.period_s.max(1).div_ceil(steps);
        let cycle =
            rates.iter().fold(0u64, |sum, rate| sum.saturating_add(rate.saturating_mul(step_s)));
        Times { base_ms: config.base_time_ms, rates, step_s, cycle }
    }

    /// In milliseconds since 1970.
    #[inline]
    pub fn at_ms(&self, number: u64) -> i64 {
        self.base_ms.saturating_add(self.after_ms(number))
    }

    /// Milliseconds after the first event.
    #[inline]
    pub fn after_ms(&self, number: u64) -> i64 {
        let within = |number: u64, rate: u64| u128::from(number) * 1000 / u128::from(rate);
        let ms = match self.rates[..] {
            [rate] => match number.checked_mul(1000) {
                Some(thousand) => u128::from(thousand / rate),
                None => within(number, rate),
            },
            _ => {
                let (cycles, mut rest) = (number / self.cycle, number % self.cycle);
                let mut steps = u128::from(cycles) * self.rates.len() as u128;
                let mut ms = 0;
                for rate in &self.rates {
                    let events = rate.saturating_mul(self.step_s);
                    if rest < events {
                        ms = within(rest, *rate);
                        break;
                    }
                    rest -= events;
                    steps += 1;
                }
                steps * u128::from(self.step_s) * 1000 + ms
            }
        };
        i64::try_from(ms).unwrap_or(i64::MAX)
    }
}
