//! Language codes: those of ISO 639-2, as used in MPEG-TS, and the shortest ones, as used in playlists and
//! manifests.
//!
//! A tag of RFC 5646 uses the shortest code of its language (§2.2.1): `de` rather than `deu` or the
//! bibliographic `ger`.

/// The two-letter code of a language, its terminological three-letter code, and its bibliographic one.
type Row = (&'static [u8; 2], &'static [u8; 3], &'static [u8; 3]);

/// Returns the tag with the shortest code of the language. Three-letter codes without a shorter one are kept:
/// `deu` and `ger` become `de`, `gsw` stays.
#[must_use]
pub fn tag(language: &str) -> &str {
    let code = language.as_bytes().first_chunk::<3>().filter(|_| language.len() == 3);
    let Some(code) = code.map(|code| code.map(|letter| letter.to_ascii_lowercase())) else { return language };
    let row = ROWS
        .iter()
        .find(|(_, terminological, bibliographic)| **terminological == code || **bibliographic == code);
    row.and_then(|(short, ..)| core::str::from_utf8(*short).ok()).unwrap_or(language)
}

/// Returns the terminological three-letter code of a tag: `de`, `de-AT` and `ger` become `deu`,
/// `gsw` stays. `None` if the language has no three-letter code.
#[must_use]
pub fn three_letters(tag: &str) -> Option<[u8; 3]> {
    let primary = tag.split(['-', '_']).next()?.as_bytes();
    if let Ok(short) = <[u8; 2]>::try_from(primary) {
        let short = short.map(|letter| letter.to_ascii_lowercase());
        let at = ROWS.binary_search_by_key(&&short, |row| row.0).ok()?;
        return ROWS.get(at).map(|row| *row.1);
    }
    let code = <[u8; 3]>::try_from(primary).ok()?.map(|letter| letter.to_ascii_lowercase());
    let row = ROWS.iter().find(|row| *row.2 == code);
    code.iter().all(u8::is_ascii_lowercase).then(|| row.map_or(code, |row| *row.1))
}

/// All languages with a two-letter code (ISO 639-1), in the order of these codes.
#[rustfmt::skip]
const ROWS: [Row; 184] = [
    (b"aa", b"aar", b"aar"),
    (b"ab", b"abk", b"abk"),
    (b"ae", b"ave", b"ave"),
    (b"af", b"afr", b"afr"),
    (b"ak", b"aka", b"aka"),
    (b"am", b"amh", b"amh"),
    (b"an", b"arg", b"arg"),
    (b"ar", b"ara", b"ara"),
    (b"as", b"asm", b"asm"),
    (b"av", b"ava", b"ava"),
    (b"ay", b"aym", b"aym"),
    (b"az", b"aze", b"aze"),
    (b"ba", b"bak", b"bak"),
    (b"be", b"bel", b"bel"),
    (b"bg", b"bul", b"bul"),
    (b"bh", b"bih", b"bih"),
    (b"bi", b"bis", b"bis"),
    (b"bm", b"bam", b"bam"),
    (b"bn", b"ben", b"ben"),
    (b"bo", b"bod", b"tib"),
    (b"br", b"bre", b"bre"),
    (b"bs", b"bos", b"bos"),
    (b"ca", b"cat", b"cat"),
    (b"ce", b"che", b"che"),
    (b"ch", b"cha", b"cha"),
    (b"co", b"cos", b"cos"),
    (b"cr", b"cre", b"cre"),
    (b"cs", b"ces", b"cze"),
    (b"cu", b"chu", b"chu"),
    (b"cv", b"chv", b"chv"),
    (b"cy", b"cym", b"wel"),
    (b"da", b"dan", b"dan"),
    (b"de", b"deu", b"ger"),
    (b"dv", b"div", b"div"),
    (b"dz", b"dzo", b"dzo"),
    (b"ee", b"ewe", b"ewe"),
    (b"el", b"ell", b"gre"),
    (b"en", b"eng", b"eng"),
    (b"eo", b"epo", b"epo"),
    (b"es", b"spa", b"spa"),
    (b"et", b"est", b"est"),
    (b"eu", b"eus", b"baq"),
    (b"fa", b"fas", b"per"),
    (b"ff", b"ful", b"ful"),
    (b"fi", b"fin", b"fin"),
    (b"fj", b"fij", b"fij"),
    (b"fo", b"fao", b"fao"),
    (b"fr", b"fra", b"fre"),
    (b"fy", b"fry", b"fry"),
    (b"ga", b"gle", b"gle"),
    (b"gd", b"gla", b"gla"),
    (b"gl", b"glg", b"glg"),
    (b"gn", b"grn", b"grn"),
    (b"gu", b"guj", b"guj"),
    (b"gv", b"glv", b"glv"),
    (b"ha", b"hau", b"hau"),
    (b"he", b"heb", b"heb"),
    (b"hi", b"hin", b"hin"),
    (b"ho", b"hmo", b"hmo"),
    (b"hr", b"hrv", b"hrv"),
    (b"ht", b"hat", b"hat"),
    (b"hu", b"hun", b"hun"),
    (b"hy", b"hye", b"arm"),
    (b"hz", b"her", b"her"),
    (b"ia", b"ina", b"ina"),
    (b"id", b"ind", b"ind"),
    (b"ie", b"ile", b"ile"),
    (b"ig", b"ibo", b"ibo"),
    (b"ii", b"iii", b"iii"),
    (b"ik", b"ipk", b"ipk"),
    (b"io", b"ido", b"ido"),
    (b"is", b"isl", b"ice"),
    (b"it", b"ita", b"ita"),
    (b"iu", b"iku", b"iku"),
    (b"ja", b"jpn", b"jpn"),
    (b"jv", b"jav", b"jav"),
    (b"ka", b"kat", b"geo"),
    (b"kg", b"kon", b"kon"),
    (b"ki", b"kik", b"kik"),
    (b"kj", b"kua", b"kua"),
    (b"kk", b"kaz", b"kaz"),
    (b"kl", b"kal", b"kal"),
    (b"km", b"khm", b"khm"),
    (b"kn", b"kan", b"kan"),
    (b"ko", b"kor", b"kor"),
    (b"kr", b"kau", b"kau"),
    (b"ks", b"kas", b"kas"),
    (b"ku", b"kur", b"kur"),
    (b"kv", b"kom", b"kom"),
    (b"kw", b"cor", b"cor"),
    (b"ky", b"kir", b"kir"),
    (b"la", b"lat", b"lat"),
    (b"lb", b"ltz", b"ltz"),
    (b"lg", b"lug", b"lug"),
    (b"li", b"lim", b"lim"),
    (b"ln", b"lin", b"lin"),
    (b"lo", b"lao", b"lao"),
    (b"lt", b"lit", b"lit"),
    (b"lu", b"lub", b"lub"),
    (b"lv", b"lav", b"lav"),
    (b"mg", b"mlg", b"mlg"),
    (b"mh", b"mah", b"mah"),
    (b"mi", b"mri", b"mao"),
    (b"mk", b"mkd", b"mac"),
    (b"ml", b"mal", b"mal"),
    (b"mn", b"mon", b"mon"),
    (b"mr", b"mar", b"mar"),
    (b"ms", b"msa", b"may"),
    (b"mt", b"mlt", b"mlt"),
    (b"my", b"mya", b"bur"),
    (b"na", b"nau", b"nau"),
    (b"nb", b"nob", b"nob"),
    (b"nd", b"nde", b"nde"),
    (b"ne", b"nep", b"nep"),
    (b"ng", b"ndo", b"ndo"),
    (b"nl", b"nld", b"dut"),
    (b"nn", b"nno", b"nno"),
    (b"no", b"nor", b"nor"),
    (b"nr", b"nbl", b"nbl"),
    (b"nv", b"nav", b"nav"),
    (b"ny", b"nya", b"nya"),
    (b"oc", b"oci", b"oci"),
    (b"oj", b"oji", b"oji"),
    (b"om", b"orm", b"orm"),
    (b"or", b"ori", b"ori"),
    (b"os", b"oss", b"oss"),
    (b"pa", b"pan", b"pan"),
    (b"pi", b"pli", b"pli"),
    (b"pl", b"pol", b"pol"),
    (b"ps", b"pus", b"pus"),
    (b"pt", b"por", b"por"),
    (b"qu", b"que", b"que"),
    (b"rm", b"roh", b"roh"),
    (b"rn", b"run", b"run"),
    (b"ro", b"ron", b"rum"),
    (b"ru", b"rus", b"rus"),
    (b"rw", b"kin", b"kin"),
    (b"sa", b"san", b"san"),
    (b"sc", b"srd", b"srd"),
    (b"sd", b"snd", b"snd"),
    (b"se", b"sme", b"sme"),
    (b"sg", b"sag", b"sag"),
    (b"si", b"sin", b"sin"),
    (b"sk", b"slk", b"slo"),
    (b"sl", b"slv", b"slv"),
    (b"sm", b"smo", b"smo"),
    (b"sn", b"sna", b"sna"),
    (b"so", b"som", b"som"),
    (b"sq", b"sqi", b"alb"),
    (b"sr", b"srp", b"srp"),
    (b"ss", b"ssw", b"ssw"),
    (b"st", b"sot", b"sot"),
    (b"su", b"sun", b"sun"),
    (b"sv", b"swe", b"swe"),
    (b"sw", b"swa", b"swa"),
    (b"ta", b"tam", b"tam"),
    (b"te", b"tel", b"tel"),
    (b"tg", b"tgk", b"tgk"),
    (b"th", b"tha", b"tha"),
    (b"ti", b"tir", b"tir"),
    (b"tk", b"tuk", b"tuk"),
    (b"tl", b"tgl", b"tgl"),
    (b"tn", b"tsn", b"tsn"),
    (b"to", b"ton", b"ton"),
    (b"tr", b"tur", b"tur"),
    (b"ts", b"tso", b"tso"),
    (b"tt", b"tat", b"tat"),
    (b"tw", b"twi", b"twi"),
    (b"ty", b"tah", b"tah"),
    (b"ug", b"uig", b"uig"),
    (b"uk", b"ukr", b"ukr"),
    (b"ur", b"urd", b"urd"),
    (b"uz", b"uzb", b"uzb"),
    (b"ve", b"ven", b"ven"),
    (b"vi", b"vie", b"vie"),
    (b"vo", b"vol", b"vol"),
    (b"wa", b"wln", b"wln"),
    (b"wo", b"wol", b"wol"),
    (b"xh", b"xho", b"xho"),
    (b"yi", b"yid", b"yid"),
    (b"yo", b"yor", b"yor"),
    (b"za", b"zha", b"zha"),
    (b"zh", b"zho", b"chi"),
    (b"zu", b"zul", b"zul"),
];

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    #[test]
    fn codes_of_three_letters_have_one_of_two_and_back() {
        for (languages, short) in
            [(&["deu", "ger", "GER"][..], "de"), (&["fra", "fre"], "fr"), (&["eng"], "en")]
        {
            assert!(languages.iter().all(|language| tag(language) == short), "{short}");
        }
        for other in ["gsw", "de", "de-AT", "", "d", "german", "\u{e4}b", "qaa"] {
            assert_eq!(tag(other), other);
        }
        let three = |tag| three_letters(tag).map(|code| String::from_utf8(code.to_vec()).unwrap());
        for german in ["de", "DE", "de-AT", "de_CH", "ger", "deu", "deu-AT"] {
            assert_eq!(three(german).as_deref(), Some("deu"), "{german}");
        }
        assert_eq!((three("gsw").as_deref(), three("zh-Hant").as_deref()), (Some("gsw"), Some("zho")));
        for none in ["", "xx", "german", "d", "d1u", "\u{e4}b", "-de"] {
            assert_eq!(three(none), None, "{none}");
        }
    }

    #[test]
    fn the_table_is_sorted_whole_and_names_no_code_twice() {
        assert!(ROWS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (short, terminological, bibliographic) in ROWS {
            let short = core::str::from_utf8(short).unwrap();
            for code in [terminological, bibliographic] {
                assert_eq!(tag(core::str::from_utf8(code).unwrap()), short);
            }
            assert_eq!(three_letters(short), Some(*terminological));
        }
        assert_eq!(ROWS.iter().filter(|row| row.1 != row.2).count(), 20, "bibliographic ones of their own");
    }
}
