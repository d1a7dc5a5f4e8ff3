//! SASL: a name and a password, as PLAIN (RFC 4616) or SCRAM (RFC 5802, RFC 7677).

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use ring::rand::SecureRandom;
use ring::{digest, hmac, pbkdf2, rand};

use super::fault::{Fault, Outcome, error_of};
use super::user::{Hash, Mechanism, User};
use super::wire::Connection;

/// Repetitions of the hash: what a broker may ask for. Kafka's default is 4,096.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4_096..=1_000_000;

/// Proves who we are.
pub(super) fn log_in(connection: &mut Connection, user: &User) -> Outcome<()> {
    let mechanism = user.mechanism.name();
    let request =
        SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism));
    let response = connection.call(&request)?;
    if error_of(response.error_code).is_some() {
        let known: Vec<&str> = response.mechanisms.iter().map(|name| &**name).collect();
        return Err(Fault::Fatal {
            place: format!("broker {}", connection.address()),
            message: format!("the broker has no mechanism {mechanism}, but {}", known.join(", ")),
            help: "set 'properties.sasl.mechanism' to one of these".into(),
        });
    }
    match user.mechanism {
        Mechanism::Plain => {
            let message = format!("\0{}\0{}", user.name, user.password.0);
            exchange(connection, user, message.into_bytes()).map(drop)
        }
        Mechanism::Scram(hash) => {
            let mut nonce = [0; 24];
            let random = rand::SystemRandom::new().fill(&mut nonce);
            random.map_err(|_| Fault::internal("there are no random numbers".into()))?;
            let scram = Scram::new(hash, user, BASE64.encode(nonce));
            let first = exchange(connection, user, scram.first().into_bytes())?;
            let wrong = |why: &str| refused(connection, user, why);
            let first = std::str::from_utf8(&first).map_err(|_| wrong("its answer is no text"))?;
            let (last, signature) = scram.last(first).map_err(wrong)?;
            let answer = exchange(connection, user, last.into_bytes())?;
            // The broker has to know the password, too.
            let expected = format!("v={}", BASE64.encode(signature));
            match answer.strip_prefix(expected.as_bytes()) {
                Some(rest) if rest.is_empty() || rest.starts_with(b",") => Ok(()),
                _ => Err(refused(connection, user, "it does not know the password itself")),
            }
        }
    }
}

fn exchange(connection: &mut Connection, user: &User, message: Vec<u8>) -> Outcome<Bytes> {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
    let response = connection.call(&request)?;
    match error_of(response.error_code) {
        None => Ok(response.auth_bytes),
        Some(error) => {
            let said = response.error_message.map(|said| said.to_string());
            let why = said.unwrap_or_else(|| error.to_string());
            Err(refused(connection, user, &why))
        }
    }
}

fn refused(connection: &Connection, user: &User, why: &str) -> Fault {
    Fault::Fatal {
        place: format!("broker {}", connection.address()),
        message: format!("user '{}' is refused: {why}", user.name.escape_debug()),
        help: "check name, password and 'properties.sasl.mechanism'".into(),
    }
}

impl Hash {
    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), message).as_ref().to_vec()
    }

    fn salted(self, password: &[u8], salt: &[u8], iterations: std::num::NonZeroU32) -> Vec<u8> {
        let (algorithm, length) = match self {
            Hash::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, digest::SHA256_OUTPUT_LEN),
            Hash::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, digest::SHA512_OUTPUT_LEN),
        };
        let mut salted = vec![0; length];
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        salted
    }
}

/// The client's side of SCRAM.
struct Scram<'a> {
    hash: Hash,
    user: &'a User,
    nonce: String,
}

impl<'a> Scram<'a> {
    fn new(hash: Hash, user: &'a User, nonce: String) -> Scram<'a> {
        Scram { hash, user, nonce }
    }

    fn bare(&self) -> String {
        let name = self.user.name.replace('=', "=3D").replace(',', "=2C");
        format!("n={name},r={}", self.nonce)
    }

    fn first(&self) -> String {
        format!("n,,{}", self.bare())
    }

    /// The second message, and the signature that the broker has to answer with.
    fn last(&self, first: &str) -> Result<(String, Vec<u8>), &'static str> {
        let part = |name: &str| first.split(',').find_map(|part| part.strip_prefix(name));
        let (nonce, salt) = (part("r="), part("s="));
        let iterations = part("i=").and_then(|text| text.parse::<u32>().ok());
        let nonce = nonce.filter(|nonce| nonce.starts_with(&self.nonce));
        let nonce = nonce.ok_or("its answer belongs to another session")?;
        let salt = salt.and_then(|salt| BASE64.decode(salt).ok()).ok_or("it sends no salt")?;
        let iterations = iterations.filter(|count| ITERATIONS.contains(count));
        let iterations = iterations.and_then(std::num::NonZeroU32::new);
        let iterations = iterations.ok_or("it asks for too few or too many iterations")?;
        let salted = self.hash.salted(self.user.password.0.as_bytes(), &salt, iterations);
        let client_key = self.hash.hmac(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), &client_key);
        // The channel is not bound: "n,," in base64.
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{first},{without_proof}", self.bare());
        let signature = self.hash.hmac(stored_key.as_ref(), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server_key = self.hash.hmac(&salted, b"Server Key");
        let server_signature = self.hash.hmac(&server_key, signed.as_bytes());
        Ok((format!("{without_proof},p={}", BASE64.encode(proof)), server_signature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::user::Secret;

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_rfc() {
        let mechanism = Mechanism::Scram(Hash::Sha256);
        let user = User { mechanism, name: "user".into(), password: Secret("pencil".into()) };
        let scram = Scram::new(Hash::Sha256, &user, "rOprNGfwEbeRWgbNEkqO".into());
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                     s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let (last, signature) = scram.last(first).unwrap();
        assert_eq!(
            last,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(BASE64.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn answers_that_a_broker_does_not_give() {
        let mechanism = Mechanism::Scram(Hash::Sha512);
        let user = User { mechanism, name: "a=b,c".into(), password: Secret("x".into()) };
        let scram = Scram::new(Hash::Sha512, &user, "abc".into());
        assert_eq!(scram.first(), "n,,n=a=3Db=2Cc,r=abc");
        for first in ["", "r=xyz,s=AAAA,i=4096", "r=abcd,s=?,i=4096", "r=abcd,s=AAAA,i=1", "r=abcd"]
        {
            assert!(scram.last(first).is_err(), "{first}");
        }
    }
}
