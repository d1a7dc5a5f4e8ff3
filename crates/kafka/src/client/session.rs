//! The start of a session with a broker: connection, versions, password.

use super::address::Address;
use super::fault::Outcome;
use super::login::log_in;
use super::settings::ClientSettings;
use super::wire::Connection;

/// Connects, and logs in if the settings say so.
pub(crate) fn open(address: &Address, settings: &ClientSettings) -> Outcome<Connection> {
    let mut connection = Connection::connect(address, settings)?;
    if let Some(user) = &settings.user {
        log_in(&mut connection, user)?;
    }
    connection.note_start();
    Ok(connection)
}
