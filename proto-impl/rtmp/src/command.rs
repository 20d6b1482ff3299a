//! Commands (§7.2): reads them, and writes answers.

use bytes::Bytes;
use flv::amf0::{self, Value};
use wire::{Reader, Writer};

/// A command message: name, transaction id, command object and arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Command {
    pub(crate) name: String,
    /// Transaction id; 0 requests no reply. Peers also send NaN and infinities, which replies repeat unchanged.
    pub(crate) transaction: f64,
    values: Vec<Value>,
}

impl Command {
    /// Reads the AMF0 values of a message. A missing transaction id is read as 0.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, flv::Error> {
        let mut r = Reader::new(payload);
        let name = amf0::read_string(&mut r)?;
        let mut values = amf0::read_all(&mut r)?;
        let transaction = match values.first() {
            Some(Value::Number(number)) => {
                let number = *number;
                values.remove(0);
                number
            }
            Some(_) | None => 0.0,
        };
        Ok(Self { name, transaction, values })
    }

    /// Returns the command object, or the value that the peer sent in its place.
    pub(crate) fn object(&self) -> &Value {
        self.values.first().unwrap_or(&Value::Null)
    }

    /// Returns an argument by its position after the command object.
    pub(crate) fn argument(&self, index: usize) -> &Value {
        self.values.get(index.saturating_add(1)).unwrap_or(&Value::Null)
    }

    pub(crate) fn wants_reply(&self) -> bool {
        self.transaction != 0.0
    }
}

/// Returns the body of a command message.
pub(crate) fn body(name: &str, transaction: f64, values: &[Value]) -> Bytes {
    let mut w = Writer::new();
    amf0::write(&Value::string(name), &mut w);
    amf0::write(&Value::Number(transaction), &mut w);
    amf0::write_all(values, &mut w);
    w.take()
}

/// Returns the information object of `onStatus` and of replies (§7.2.2).
pub(crate) fn information(level: &str, code: &str, description: &str) -> Value {
    Value::object([
        ("level", Value::string(level)),
        ("code", Value::string(code)),
        ("description", Value::string(description)),
    ])
}

/// Returns a text member of an object; empty if there is no such member.
pub(crate) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let values = [Value::Null, Value::string("key"), Value::string("live")];
        let command = Command::read(&body("publish", 5.0, &values)).unwrap();
        assert_eq!((command.name.as_str(), command.transaction), ("publish", 5.0));
        assert_eq!(command.argument(0).as_str(), Some("key"));
        assert_eq!(command.argument(9), &Value::Null);
    }

    #[test]
    fn m_12_odd_transactions_are_tolerated() {
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let command = Command::read(&body("releaseStream", odd, &[Value::Null])).unwrap();
            assert!(command.wants_reply());
            assert_eq!(command.transaction.to_bits(), odd.to_bits());
        }
        let mut w = Writer::new();
        amf0::write_all(&[Value::string("ping"), Value::Null], &mut w);
        let command = Command::read(&w.take()).unwrap();
        assert!(!command.wants_reply());
    }
}
