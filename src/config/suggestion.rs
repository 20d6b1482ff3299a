//! What somebody meant who has mistyped a key.

use super::home::variable_of;
use super::{Level, Schema};

/// Words that differ by more are others.
const SIMILARITY_MIN: f64 = 0.75;

/// The reason why a key of the command line is refused. `given` begins with `app.` for one of applications.
pub(super) fn unknown_key(schema: &Schema, given: &str) -> String {
    reason("key", given, keys(schema))
}

/// The same for a variable of the environment.
pub(super) fn unknown_variable(schema: &Schema, given: &str) -> String {
    let variables = keys(schema).map(|key| format!("MILLSTREAM_{}", variable_of(&key)));
    reason("variable", given, variables)
}

/// As they are written on the command line.
fn keys(schema: &Schema) -> impl Iterator<Item = String> {
    let server = schema.keys(Level::Server).iter().map(|key| key.name.to_owned());
    server.chain(schema.keys(Level::App).iter().map(|key| format!("app.{}", key.name)))
}

fn reason(what: &str, given: &str, known: impl Iterator<Item = String>) -> String {
    // Case and the missing level are the commonest mistakes.
    let plain = |word: &str| {
        let word = word.to_ascii_lowercase();
        word.strip_prefix("app.").unwrap_or(&word).to_owned()
    };
    let wanted = plain(given);
    let nearest = known
        .map(|word| (strsim::jaro_winkler(&plain(&word), &wanted), word))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN);
    match nearest {
        Some((_, word)) => format!("there is no such {what}; did you mean {word}?"),
        None => format!("there is no such {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_known_word_is_named() {
        let schema: &Schema = Default::default();
        for (given, meant) in [
            ("playTokenControlEnabled", "app.playTokenControlEnabled"),
            ("app.playtokencontrolEnabled", "app.playTokenControlEnabled"),
            ("app.playTokenControlEnable", "app.playTokenControlEnabled"),
            ("http.prot", "http.port"),
            ("app.server.name", "server.name"),
        ] {
            let told = unknown_key(schema, given);
            assert!(told.ends_with(&format!("did you mean {meant}?")), "{given}: {told}");
        }
        assert_eq!(unknown_key(schema, "zzz"), "there is no such key");
        let told = unknown_variable(schema, "MILLSTREAM_HTTP_PROT");
        assert!(told.ends_with("did you mean MILLSTREAM_HTTP_PORT?"), "{told}");
    }
}
