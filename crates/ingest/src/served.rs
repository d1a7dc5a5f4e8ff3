//! Constant properties of a fed table, and checks of producers.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use millstream_connect::ArrowMessages;
use millstream_contract::Result;

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

impl Served {
    /// The messages of a producer, behind the message of its schema. Dictionaries take as much as a
    /// message at most.
    pub(crate) fn messages(&self, place: &str, schema: Bytes) -> Result<ArrowMessages> {
        let columns = (&self.schema, &*self.projection);
        ArrowMessages::new(place, schema, columns, self.message_bytes_max)
    }

    /// Whether a producer may feed the table.
    pub(crate) fn admits(&self, presented: Option<&str>) -> bool {
        self.token.as_deref().is_none_or(|token| is_equal(token, presented))
    }
}

/// Whether the right token was presented; takes as long for any token of its length.
fn is_equal(token: &str, presented: Option<&str>) -> bool {
    let presented = presented.unwrap_or("");
    let differences = token.bytes().zip(presented.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    token.len() == presented.len() && differences == 0
}

/// Checks the name of a producer.
pub(crate) fn check_name(name: &str) -> std::result::Result<&str, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain);
    let help = || format!("a producer's name has 1 to {NAME_BYTES_MAX} letters, digits and -_.:/");
    fits.then_some(name).ok_or_else(help)
}
