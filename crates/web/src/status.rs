//! Status codes: their reason phrases and which of them have no body.

use http::StatusCode;

/// The reason phrase of a status (IANA's registry); empty for one that has none.
pub fn reason(status: u16) -> &'static str {
    match status {
        // RFC 9110 renamed these two; the crate has their older names.
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        _ => StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or(""),
    }
}

/// True for a status whose response never has a body: 1xx, 204 and 304.
pub fn is_bodyless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_bodies() {
        assert_eq!(reason(200), "OK");
        assert_eq!(reason(431), "Request Header Fields Too Large");
        assert_eq!((reason(299), reason(799)), ("", ""));
        let bodyless: Vec<u16> = (100..=999).filter(|&code| is_bodyless(code)).collect();
        assert_eq!(bodyless.len(), 102);
        assert!(is_bodyless(204) && is_bodyless(304) && !is_bodyless(205) && !is_bodyless(200));
    }
}
