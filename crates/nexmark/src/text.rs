//! Random numbers that depend on an event's number alone, and texts that are drawn by them.

use std::sync::OnceLock;

use crate::exact::exp;

/// How many channels there are beside the hot ones.
pub(super) const CHANNELS: u64 = 10_000;

/// The channels of which every second bid comes.
pub(super) const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

/// Seed of the channels' URLs, independent of the seed of the stream.
const CHANNELS_SEED: u64 = 0x6368_616e_6e65_6c73;

/// Number of letters from one draw.
const LETTERS_OF_A_DRAW: usize = 8;

/// A sequence of random numbers (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// The sequence of an event.
    #[inline]
    pub(super) fn new(seed: u64, number: u64) -> Random {
        Random(mix(seed ^ mix(number)))
    }

    /// 64 random bits.
    #[inline]
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`, which is at least 1.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// One of these.
    #[inline]
    pub(super) fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// A price from 100 to 100 million cents, whose logarithm is uniform.
    #[inline]
    pub(super) fn price(&mut self) -> i64 {
        // In (0, 1], of 53 bits.
        let share = ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (1e8 * exp(-6.0 * std::f64::consts::LN_10 * share)).round() as i64
    }

    /// Appends so many letters.
    pub(super) fn letters(&mut self, length: usize, out: &mut Vec<u8>) {
        let end = out.len() + length;
        for _ in 0..length.div_ceil(LETTERS_OF_A_DRAW) {
            let mut bits = self.next();
            let mut letters = [b'a'; LETTERS_OF_A_DRAW];
            for letter in &mut letters {
                let product = u128::from(bits) * 26;
                *letter += (product >> 64) as u8;
                bits = product as u64;
            }
            out.extend_from_slice(&letters);
        }
        out.truncate(end);
    }

    /// Appends a text of 3 to `most - 1` characters, one in 13 of which is `gap`, the others
    /// letters. Spaces at its ends are dropped.
    pub(super) fn words(&mut self, most: u64, gap: u8, out: &mut Vec<u8>) {
        let length = 3 + self.below(most - 3);
        let start = out.len();
        for _ in 0..length {
            // 13 * 26: both choices in one draw.
            let draw = self.below(338);
            out.push(if draw < 26 { gap } else { b'a' + (draw % 26) as u8 });
        }
        if gap == b' ' {
            while out.len() > start && out.last() == Some(&b' ') {
                out.pop();
            }
            let spaces = out[start..].iter().take_while(|byte| **byte == b' ').count();
            out.drain(start..start + spaces);
        }
    }

    /// Appends letters, a fifth more or less, so that a row of which `taken` bytes are there has
    /// `average` bytes on average.
    pub(super) fn extra(&mut self, taken: u64, average: u64, out: &mut Vec<u8>) {
        let Some(wanted) = average.checked_sub(taken).filter(|wanted| *wanted > 0) else { return };
        let spread = (wanted * 2 + 5) / 10;
        let more = if spread == 0 { 0 } else { self.below(2 * spread) };
        self.letters((wanted - spread + more) as usize, out);
    }

    /// Appends a page of the auction house.
    fn url(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"https://www.nexmark.com/");
        for _ in 0..3 {
            self.words(5, b'_', out);
            out.push(b'/');
        }
        out.extend_from_slice(b"item.htm?query=1");
    }
}

/// The finaliser of splitmix64: a bijection that spreads every bit over all.
#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The URLs of bids.
#[derive(Debug)]
pub(super) struct Urls {
    /// By place in [`HOT_CHANNELS`].
    pub(super) hot: Vec<Vec<u8>>,
    /// By channel: nine in ten name it.
    pub(super) others: Vec<Vec<u8>>,
}

/// The URLs of all channels: always the same.
pub(super) fn urls() -> &'static Urls {
    static URLS: OnceLock<Urls> = OnceLock::new();
    URLS.get_or_init(|| {
        let url = |number: u64| {
            let (mut random, mut url) = (Random::new(CHANNELS_SEED, number), Vec::new());
            random.url(&mut url);
            (random, url)
        };
        let other = |channel: u64| {
            let (mut random, mut url) = url(channel);
            if random.below(10) > 0 {
                let id = i64::from((channel as u32).reverse_bits() as i32).unsigned_abs();
                url.extend_from_slice(format!("&channel_id={id}").as_bytes());
            }
            url
        };
        Urls {
            hot: (0..HOT_CHANNELS.len() as u64).map(|hot| url(CHANNELS + hot).1).collect(),
            others: (0..CHANNELS).map(other).collect(),
        }
    })
}
