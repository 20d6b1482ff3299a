//! RDB files of Redis (versions 5 to 13: Redis 2.6 to 8.6) and Valkey (version 11: 7.2 and 8, version 80: 9). Hashes
//! with wanted names are read; everything else is skipped.
//!
//! 1. The header has the version. A checksum at the end covers the whole file ([`Input`]).
//! 2. Opcodes and keys follow each other. A wanted hash is read value by value, in any of its encodings. Other keys are
//!    skipped, and their bytes are not kept.
//! 3. A small hash is one packed string. Strings may be compressed ([`packed`]).
//!
//! The expiry of keys and fields is ignored, because records do not expire. Hashes of Redis before 2.6 and modules
//! before 4.0 are not read.

mod input;
mod packed;
#[cfg(test)]
mod tests;

use std::io::{self, Read};

use input::{Input, damaged};

/// Supported versions of the format: those of Redis, and of other programs that use the same numbers.
const VERSIONS: std::ops::RangeInclusive<u32> = 5..=13;
/// Version of the format in Valkey 9, which has its own numbering.
const VERSION_OF_VALKEY: u32 = 80;

/// The program that wrote a file. Since Redis 7.4, Redis and Valkey use the same numbers for different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    Redis,
    Valkey,
}

/// Opcodes.
mod op {
    /// Redis: data of modules about the key that follows. Valkey: a slot of a cluster that is being imported.
    pub(super) const KEY_METADATA_OR_SLOT_IMPORT: u8 = 0xf3;
    pub(super) const SLOT_INFO: u8 = 0xf4;
    pub(super) const FUNCTION: u8 = 0xf5;
    pub(super) const MODULE_AUX: u8 = 0xf7;
    pub(super) const IDLE: u8 = 0xf8;
    pub(super) const FREQUENCY: u8 = 0xf9;
    pub(super) const AUX: u8 = 0xfa;
    pub(super) const RESIZE: u8 = 0xfb;
    pub(super) const EXPIRES_MS: u8 = 0xfc;
    pub(super) const EXPIRES_S: u8 = 0xfd;
    pub(super) const SELECT: u8 = 0xfe;
    pub(super) const END: u8 = 0xff;
}

/// Encodings of a key's value.
mod kind {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const SORTED_SET: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const SORTED_SET_2: u8 = 5;
    pub(super) const MODULE_2: u8 = 7;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const SORTED_SET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const QUICKLIST: u8 = 14;
    pub(super) const STREAM: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const SORTED_SET_LISTPACK: u8 = 17;
    pub(super) const QUICKLIST_2: u8 = 18;
    pub(super) const STREAM_2: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM_3: u8 = 21;
    /// A hash with an expiry for each field (Valkey 9).
    pub(super) const HASH_OF_VALKEY: u8 = 22;
    /// Hashes with an expiry for each field (Redis 7.4).
    pub(super) const HASH_METADATA: u8 = 24;
    pub(super) const HASH_LISTPACK_EX: u8 = 25;
    /// A stream with the entries of idempotent producers (Redis 8.6). Kinds with higher numbers come with version 14,
    /// which is not read.
    pub(super) const STREAM_4: u8 = 26;
}

/// A wanted hash that was found in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Index of the hash in the list of wanted hashes.
    pub(super) wanted: usize,
    /// Number of the database that contains the hash.
    pub(super) database: u64,
}

/// Passes on the values of the wanted hashes, in the order of the file. Stops, without a fault, if `give` returns
/// false.
///
/// # Errors
/// The file cannot be read to its end. Values that were already passed on are valid.
pub(super) fn values(
    input: impl Read,
    wanted: &[String],
    give: &mut dyn FnMut(Found, &[u8]) -> bool,
) -> io::Result<()> {
    let mut input = Input::new(input);
    let writer = header(&mut input)?;
    let mut database = 0;
    loop {
        match input.byte()? {
            op::END => return input.check_end(),
            op::SELECT => database = input.length()?,
            op::EXPIRES_MS => input.skip(8)?,
            op::EXPIRES_S => input.skip(4)?,
            op::FREQUENCY => input.skip(1)?,
            op::IDLE => input.skip_lengths(1)?,
            op::RESIZE => input.skip_lengths(2)?,
            op::SLOT_INFO => input.skip_lengths(3)?,
            op::FUNCTION => input.skip_string()?,
            op::AUX => input.skip_strings(2)?,
            op::KEY_METADATA_OR_SLOT_IMPORT => match writer {
                Writer::Redis => each(&mut input, |class| {
                    class.skip(4)?;
                    skip_module(class)
                })?,
                Writer::Valkey => {
                    // The name of the import of slots, then ranges of slots.
                    input.skip_string()?;
                    each(&mut input, |range| range.skip_lengths(2))?;
                }
            },
            op::MODULE_AUX => {
                // The id of the module, and the place in the file at which the module wrote its data.
                input.skip_lengths(3)?;
                skip_module(&mut input)?;
            }
            encoding => {
                let key = input.string_or_skip()?;
                let at = key.and_then(|key| wanted.iter().position(|name| name.as_bytes() == key));
                let Some(at) = at else {
                    skip_value(&mut input, writer, encoding)?;
                    continue;
                };
                let found = Found { wanted: at, database };
                if !hash(&mut input, writer, encoding, &mut |value| give(found, value))? {
                    return Ok(());
                }
            }
        }
    }
}

/// Reads the first nine bytes: `REDIS` and four digits, or `VALKEY` and three digits.
fn header<R: Read>(input: &mut Input<R>) -> io::Result<Writer> {
    let no_file = || io::Error::new(io::ErrorKind::InvalidData, "no RDB file of Redis or Valkey");
    let header = input.array::<9>().map_err(|_| no_file())?;
    let of = |name: &[u8], writer| header.strip_prefix(name).map(|version| (writer, version));
    let found = of(b"REDIS", Writer::Redis).or_else(|| of(b"VALKEY", Writer::Valkey));
    let (writer, version) = found.ok_or_else(no_file)?;
    let version =
        std::str::from_utf8(version).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let version: u32 = version.and_then(|text| text.parse().ok()).ok_or_else(no_file)?;
    let is_read = match writer {
        Writer::Redis => VERSIONS.contains(&version),
        Writer::Valkey => version == VERSION_OF_VALKEY,
    };
    if is_read {
        return Ok(writer);
    }
    let reason = format!(
        "version {version} of the format is not read here: load the file with a server of your own, and name that by --redis"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// Passes on the values of a hash. Returns false if no more values are wanted.
fn hash<R: Read>(
    input: &mut Input<R>,
    writer: Writer,
    encoding: u8,
    give: &mut dyn FnMut(&[u8]) -> bool,
) -> io::Result<bool> {
    match encoding {
        kind::HASH => {
            for _ in 0..input.length()? {
                input.skip_string()?;
                if !give(&input.string()?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        kind::HASH_OF_VALKEY if writer == Writer::Valkey => {
            for _ in 0..input.length()? {
                input.skip_string()?;
                if !give(&input.string()?) {
                    return Ok(false);
                }
                // The expiry of the field.
                input.skip(8)?;
            }
            Ok(true)
        }
        kind::HASH_METADATA => {
            // The earliest expiry of the hash's fields.
            input.skip(8)?;
            for _ in 0..input.length()? {
                input.skip_lengths(1)?;
                input.skip_string()?;
                if !give(&input.string()?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        kind::HASH_ZIPLIST => packed::ziplist(&input.string()?, give).ok_or_else(damaged),
        kind::HASH_LISTPACK => packed::listpack(&input.string()?, 2, give).ok_or_else(damaged),
        kind::HASH_LISTPACK_EX => {
            input.skip(8)?;
            // Each field is followed by its value and its expiry.
            packed::listpack(&input.string()?, 3, give).ok_or_else(damaged)
        }
        kind::HASH_ZIPMAP => Err(io::Error::other("a hash of Redis before 2.6 is not read here")),
        _ => Err(io::Error::other("the key of this name is no hash")),
    }
}

fn skip_value<R: Read>(input: &mut Input<R>, writer: Writer, encoding: u8) -> io::Result<()> {
    match encoding {
        kind::STRING
        | kind::HASH_ZIPMAP
        | kind::LIST_ZIPLIST
        | kind::SET_INTSET
        | kind::SORTED_SET_ZIPLIST
        | kind::HASH_ZIPLIST
        | kind::HASH_LISTPACK
        | kind::SORTED_SET_LISTPACK
        | kind::SET_LISTPACK => input.skip_string(),
        kind::LIST | kind::SET | kind::QUICKLIST => {
            let count = input.length()?;
            input.skip_strings(count)
        }
        kind::HASH => each(input, |input| input.skip_strings(2)),
        kind::SORTED_SET => each(input, |input| {
            input.skip_string()?;
            // The score: the number of its digits, or a code for NaN or an infinity.
            match input.byte()? {
                0xfd..=0xff => Ok(()),
                digits => input.skip(digits.into()),
            }
        }),
        kind::SORTED_SET_2 => each(input, |input| {
            input.skip_string()?;
            input.skip(8)
        }),
        kind::QUICKLIST_2 => each(input, |input| {
            input.skip_lengths(1)?;
            input.skip_string()
        }),
        kind::HASH_OF_VALKEY if writer == Writer::Valkey => each(input, |input| {
            input.skip_strings(2)?;
            input.skip(8)
        }),
        kind::HASH_METADATA => {
            input.skip(8)?;
            each(input, |input| {
                input.skip_lengths(1)?;
                input.skip_strings(2)
            })
        }
        kind::HASH_LISTPACK_EX => {
            input.skip(8)?;
            input.skip_string()
        }
        kind::STREAM | kind::STREAM_2 | kind::STREAM_3 | kind::STREAM_4 => skip_stream(input, encoding),
        kind::MODULE_2 => {
            input.skip_lengths(1)?;
            skip_module(input)
        }
        other => Err(io::Error::other(format!(
            "a value of kind {other}, which is not known here; the rest is not read"
        ))),
    }
}

fn each<R: Read>(
    input: &mut Input<R>,
    mut skip: impl FnMut(&mut Input<R>) -> io::Result<()>,
) -> io::Result<()> {
    for _ in 0..input.length()? {
        skip(input)?;
    }
    Ok(())
}

/// Skips a stream: its entries, its ids, its groups with the entries that each consumer has not acknowledged, and its
/// producers.
fn skip_stream<R: Read>(input: &mut Input<R>, encoding: u8) -> io::Result<()> {
    let is_later = |than: u8| encoding >= than;
    each(input, |input| input.skip_strings(2))?;
    input.skip_lengths(if is_later(kind::STREAM_2) { 8 } else { 3 })?;
    each(input, |group| {
        group.skip_string()?;
        group.skip_lengths(if is_later(kind::STREAM_2) { 3 } else { 2 })?;
        each(group, |pending| {
            pending.skip(16 + 8)?;
            pending.skip_lengths(1)
        })?;
        each(group, |consumer| {
            consumer.skip_string()?;
            consumer.skip(if is_later(kind::STREAM_3) { 16 } else { 8 })?;
            each(consumer, |pending| pending.skip(16))
        })
    })?;
    if is_later(kind::STREAM_4) { skip_producers(input) } else { Ok(()) }
}

/// Skips the idempotent producers of a stream: two limits; then, for each producer, its name and the messages that it
/// may repeat; then two counts.
fn skip_producers<R: Read>(input: &mut Input<R>) -> io::Result<()> {
    input.skip_lengths(2)?;
    each(input, |producer| {
        producer.skip_string()?;
        each(producer, |message| {
            message.skip_string()?;
            message.skip_lengths(2)
        })
    })?;
    input.skip_lengths(2)
}

/// Skips the values of a module, up to the mark of their end.
fn skip_module<R: Read>(input: &mut Input<R>) -> io::Result<()> {
    loop {
        match input.length()? {
            0 => return Ok(()),
            1 | 2 => input.skip_lengths(1)?,
            3 => input.skip(4)?,
            4 => input.skip(8)?,
            5 => input.skip_string()?,
            _ => return Err(damaged()),
        }
    }
}
