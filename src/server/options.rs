//! What a user chose about the server.
//!
//! Owns: the choices, and the rule that an address others can reach needs a key.
//! Always true: a key is kept and compared as a hash, in constant time.
//! Not here: where a choice comes from (`cli`).

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{Error, Result};

/// A secret that clients show.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Over the secret.
    ///
    /// Errors: `Error::Invalid` if it is empty or cannot stand in a header.
    pub fn new(secret: &str) -> Result<Key> {
        match !secret.is_empty() && secret.chars().all(|c| c.is_ascii_graphic()) {
            true => Ok(Key(Sha256::digest(secret).into())),
            false => Err(Error::invalid("the key is empty or has blanks in it: use visible ASCII characters")),
        }
    }

    /// The first line of a file.
    pub fn from_file(path: &Path) -> Result<Key> {
        let text =
            std::fs::read_to_string(path).map_err(Error::io(format!("cannot read the key in {}", path.display())))?;
        Key::new(text.lines().next().unwrap_or_default().trim())
            .map_err(|error| Error::invalid(format!("{}: {error}", path.display())))
    }

    /// Whether a client showed this secret. Its time tells nothing about where the two differ.
    pub fn opens(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(&Sha256::digest(shown)).into()
    }
}

/// Name of the field that carries the thinking in OpenAI's chats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning_content` (DeepSeek's; most clients).
    ReasoningContent,
    /// `reasoning` (OpenRouter's, Ollama's).
    Reasoning,
}

impl ReasoningField {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            ReasoningField::ReasoningContent => "reasoning_content",
            ReasoningField::Reasoning => "reasoning",
        }
    }
}

/// The choices.
#[derive(Clone)]
pub struct Options {
    /// Address to listen on.
    pub host: IpAddr,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Keys of which a client must show one; none is open to everyone who reaches the address.
    pub keys: Vec<Key>,
    /// Origins whose pages may use the server; `*` is any.
    pub cors_origins: Vec<String>,
    /// Names that the model goes by besides its own; `*` is any.
    pub aliases: Vec<String>,
    /// The most bytes of a body.
    pub body_limit: usize,
    /// How long running answers may take to finish after the first signal.
    pub grace: Duration,
    /// How long one step may take before the device counts as stuck; zero: as long as it likes.
    pub watchdog: Duration,
    /// Where the thinking stands.
    pub reasoning_field: ReasoningField,
    /// The settings, for `/props`; without secrets.
    pub settings: Value,
}

impl Options {
    /// The rule of addresses.
    ///
    /// Errors: `Error::Invalid` for an address that others can reach, without a key.
    pub fn check(&self) -> Result<()> {
        if self.host.is_loopback() || !self.keys.is_empty() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{} can be reached by others: give a key (--api-key, --api-key-file or HIPFIRE_API_KEY) or listen on \
             127.0.0.1",
            self.host
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_for_its_secret_alone() {
        let key = Key::new("sesame").unwrap();
        assert!(key.opens(b"sesame"));
        assert!(!key.opens(b"sesam") && !key.opens(b"sesame ") && !key.opens(b""));
        assert!(Key::new("").is_err() && Key::new("two words").is_err());
    }
}
