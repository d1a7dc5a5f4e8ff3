//! Counts the instructions that exchanging a row costs:
//!
//! ```text
//! cargo build --release -p millstream-engine --example exchange
//! valgrind --tool=callgrind --toggle-collect='*exchange*Sender*advance_with*' \
//!     target/release/examples/exchange max 100 2
//! ```
//!
//! The cost of a row is the number of instructions collected, divided by the number of rows
//! printed. To count the receiver, collect `'*passed*Reader*read*'` and give `receive` as the
//! last argument. Valgrind does not support AVX-512, so it counts the AVX2 code.

use millstream_engine::exchange::bench::{Shape, run};

const USAGE: &str = "usage: exchange count|max|mean|text BATCHES RECEIVERS [KEYS] [receive]";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let receive = words.pop_if(|word| word == "receive").is_some();
    let [shape, batches, receivers, keys @ ..] = &words[..] else { return Err(USAGE.into()) };
    let shape = Shape::from_name(shape).ok_or(USAGE)?;
    let keys = keys.first().map_or(Ok(10_000), |keys| keys.parse())?;
    let counts = run(shape, batches.parse()?, keys, receivers.parse()?, receive)?;
    println!("{counts:?}");
    Ok(())
}
