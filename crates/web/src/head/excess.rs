//! What is too long in a head that was refused, for the log.

use super::error::HeadError;
use crate::limits::Limits;

/// Bytes of a header's name that are shown.
const NAME_BYTES_MAX: usize = 80;

/// Names what is too long, and how long it is as far as it was read. `None`: the fault is another one.
pub(crate) fn describe(read: &[u8], error: HeadError, limits: &Limits) -> Option<String> {
    let end = read.as_ptr_range().end;
    let bytes = |part: &[u8]| {
        let is_cut = part.as_ptr_range().end == end;
        format!("{} bytes{}", part.len(), if is_cut { " or more" } else { "" })
    };
    match error {
        HeadError::UriTooLong => {
            let target = read.split(|byte| *byte == b' ').nth(1)?;
            let question = memchr::memchr(b'?', target).unwrap_or(target.len());
            let (path, query) = target.split_at(question);
            let (path, query, max) = (path.len(), bytes(query), limits.uri_bytes_max);
            Some(format!(
                "the path has {path} bytes, the query {query}; uri_bytes_max is {max} for both"
            ))
        }
        HeadError::TooLarge => {
            let lines = read.split(|byte| *byte == b'\n').skip(1);
            let longest = lines.max_by_key(|line| line.len())?;
            let name = longest.split(|byte| *byte == b':').next()?;
            Some(format!(
                "the head has {}, of them the line of the header {} {}; header_bytes_max is {}",
                bytes(read),
                name[..name.len().min(NAME_BYTES_MAX)].escape_ascii(),
                bytes(longest),
                limits.header_bytes_max
            ))
        }
        HeadError::TooManyHeaders => {
            Some(format!("the head has more lines than {}", limits.header_count_max))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_names_its_element() {
        let limits = Limits { uri_bytes_max: 8, header_bytes_max: 40, ..Limits::for_tests() };
        let say = |read: &str, error| describe(read.as_bytes(), error, &limits).unwrap();
        let both = "uri_bytes_max is 8 for both";
        assert_eq!(
            say("GET /abc?defgh HTTP/1.1", HeadError::UriTooLong),
            format!("the path has 4 bytes, the query 6 bytes; {both}")
        );
        assert_eq!(
            say("GET /abcdefg?hi", HeadError::UriTooLong),
            format!("the path has 8 bytes, the query 3 bytes or more; {both}")
        );
        assert_eq!(
            say("GET / HTTP/1.1\r\na: b\r\nCook\x01ie: abcdefgh", HeadError::TooLarge),
            "the head has 39 bytes or more, of them the line of the header Cook\\x01ie 17 bytes or \
             more; header_bytes_max is 40"
        );
        assert!(say("", HeadError::TooManyHeaders).ends_with("lines than 100"));
        assert_eq!(describe(b"GET /", HeadError::Method, &limits), None);
    }
}
