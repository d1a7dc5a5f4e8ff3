//! Constant properties of a fed table, and checks of producers.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::slots::Slots;

/// Bytes of a producer's name at most.
const NAME_BYTES_MAX: usize = 64;

/// A table that is served.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) slots: Arc<Slots>,
    /// The columns of the table, and those that the job reads.
    pub(crate) schema: SchemaRef,
    pub(crate) projection: Arc<[usize]>,
    pub(crate) token: Option<Arc<str>>,
    pub(crate) message_bytes_max: u64,
}

/// Whether the right token was presented; takes as long for any token of its length.
pub(crate) fn is_equal(token: &str, presented: Option<&str>) -> bool {
    let presented = presented.unwrap_or("");
    let differences = token.bytes().zip(presented.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    token.len() == presented.len() && differences == 0
}

/// Checks the name of a producer.
pub(crate) fn check_name(name: &str) -> Result<&str, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    let help = || format!("a producer's name has 1 to {NAME_BYTES_MAX} letters, digits and -_.:/");
    fits.then_some(name).ok_or_else(help)
}
