//! Contract of a registry of schemas.

use std::fmt::Debug;
use std::sync::Arc;

use millstream_contract::Result;

/// Schemas by number.
pub trait SchemaRegistry: Debug + Send + Sync {
    /// Asks whether the registry is there, and takes us for who we say we are.
    ///
    /// # Errors
    ///
    /// If not.
    fn check(&self) -> Result<()>;

    /// The JSON of the schema with this number; `None` if the registry does not know it. Called
    /// once per number, and again some time after `None`. May wait.
    ///
    /// # Errors
    ///
    /// If the registry is away, or refuses; the job ends then.
    fn schema(&self, number: u32) -> Result<Option<Arc<str>>>;

    /// Registers the schema of what is written, and gives its number.
    ///
    /// # Errors
    ///
    /// If the registry is away, or refuses.
    fn register(&self, schema: &str) -> Result<u32>;

    /// For messages: its URL.
    fn place(&self) -> &str;

    /// A line for the user, given once: the registry is away, and is asked again.
    fn news(&self) -> Option<String>;
}
