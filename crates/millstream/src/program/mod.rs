//! For the program: the parts that `millstream` and its laboratory need beyond
//! [`Session`](crate::Session) and its jobs. Other programs do without, and nothing here promises
//! to stay.

pub(crate) mod analyzed;
mod check;
pub mod cluster;
pub(crate) mod control;
mod counters;
pub(crate) mod planned;
pub mod saved;
pub mod script;

pub use millstream_connect::{AwaitedPipe, awaited_pipes, give_up_pipes};
pub use millstream_contract::calendar::civil_from_days;
pub use millstream_contract::declaration;
pub use millstream_contract::plan::Plan;
pub use millstream_contract::settings::{SETTINGS, closest, is_url};
pub use millstream_contract::sink::{mark_all, publish_all};
pub use millstream_contract::wording::{bytes, counted, grouped, harmless, plural, short};
pub use millstream_engine::{Job, Stopper, on_refused_memory};
pub use millstream_sql::{Statement, parse_script};

pub use crate::submit::write_answer;
pub use analyzed::analyzed;
pub use check::{Checked, check};
pub use control::SessionControl;
pub use counters::counters;
pub use planned::{Executed, Planned};
