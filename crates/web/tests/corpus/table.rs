//! Reads the tables. Their format is described at the head of `hostile.txt`.

/// One line of a table.
pub struct CorpusCase {
    pub name: String,
    /// The second field, unescaped only where its reader does so.
    pub expected: String,
    pub bytes: Vec<u8>,
}

pub fn hostile() -> Vec<CorpusCase> {
    read(include_str!("hostile.txt"))
}

pub fn valid() -> Vec<CorpusCase> {
    read(include_str!("valid.txt"))
}

/// The lines of a table as its three fields.
pub fn fields(text: &str) -> impl Iterator<Item = [&str; 3]> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        let mut parts = line.splitn(3, " | ");
        let fields = [(); 3].map(|()| parts.next());
        fields.map(|field| field.unwrap_or_else(|| panic!("three fields in {line:?}")))
    })
}

fn read(text: &str) -> Vec<CorpusCase> {
    let entry = |[name, expected, bytes]: [&str; 3]| CorpusCase {
        name: name.into(),
        expected: expected.into(),
        bytes: unescape(bytes),
    };
    fields(text).map(entry).collect()
}

pub fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.extend_from_slice(plain.as_bytes());
        let used = match escape.as_bytes()[0] {
            b'r' => push(&mut out, b'\r'),
            b'n' => push(&mut out, b'\n'),
            b't' => push(&mut out, b'\t'),
            b'0' => push(&mut out, 0),
            b'\\' => push(&mut out, b'\\'),
            b'x' => {
                out.push(u8::from_str_radix(&escape[1..3], 16).expect("two hex digits"));
                3
            }
            b'{' => {
                let end = escape.find('}').expect("a closing brace");
                let (count, text) = escape[1..end].split_once('*').expect("a star");
                out.extend(unescape(text).repeat(count.parse().expect("a count")));
                end + 1
            }
            other => panic!("escape \\{} in {text:?}", other as char),
        };
        rest = &escape[used..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn push(out: &mut Vec<u8>, byte: u8) -> usize {
    out.push(byte);
    1
}

#[test]
fn escapes() {
    assert_eq!(unescape(r"a\r\n\t\0\\\x7fb"), b"a\r\n\t\0\\\x7fb");
    assert_eq!(unescape(r"<\{3*x\r}>"), b"<x\rx\rx\r>");
}

#[test]
fn tables_are_as_large_as_promised_and_their_names_unique() {
    let (hostile, valid) = (hostile(), valid());
    assert!(hostile.len() >= 120 && valid.len() >= 60, "{} {}", hostile.len(), valid.len());
    let mut names: Vec<_> = hostile.iter().chain(&valid).map(|entry| &entry.name).collect();
    names.sort();
    names.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
}
