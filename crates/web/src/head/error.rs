//! Why a request is refused before the application sees it.

use std::fmt;

/// Why a head is refused. The beginning of the next request is unknown then, so
/// the connection is closed after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadError {
    /// More empty lines before the request than a broken client sends.
    BlankLines,
    /// A byte that no method name has, or no method at all.
    Method,
    /// A method name longer than any in use.
    MethodTooLong,
    /// `CONNECT`: this server is no proxy.
    Connect,
    /// A space, control byte or invalid UTF-8 in the target, or an empty target.
    Target,
    /// Not a form of target that its method allows (RFC 9112 section 3.2).
    TargetForm,
    /// `#`, `"`, `<` or `>` in the target; clients encode or drop them.
    TargetByte,
    /// A target longer than `uri_bytes_max`.
    UriTooLong,
    /// An absolute target whose scheme is neither http nor https.
    Scheme,
    /// An absolute target with an invalid, empty or user-named authority.
    Authority,
    /// The request line ends before a version (HTTP/0.9).
    NoVersion,
    /// Something that is no HTTP version where one belongs.
    Version,
    /// A major version other than 1.
    VersionUnsupported,
    /// A line feed without a carriage return.
    BareLf,
    /// A carriage return without a line feed.
    BareCr,
    /// A line that continues the one before, or a space before the first header.
    Folded,
    /// A header line without a colon.
    NoColon,
    /// Space between a header's name and its colon.
    SpaceBeforeColon,
    /// An empty header name.
    EmptyName,
    /// A byte that no header name has.
    Name,
    /// A NUL or another control byte in a header's value.
    Value,
    /// White space around a header's value (HTTP/2).
    PaddedValue,
    /// More bytes than `header_bytes_max`.
    TooLarge,
    /// More header lines than `header_count_max`.
    TooManyHeaders,
    /// HTTP/1.1 without `Host`.
    NoHost,
    /// More than one `Host`.
    HostTwice,
    /// A `Host` that is no host and port.
    Host,
    /// A `Host` that is not the `:authority` (HTTP/2).
    HostDiffers,
    /// Several `Content-Length` that differ.
    LengthTwice,
    /// A `Content-Length` that is no number of at most 64 bits.
    Length,
    /// A `Content-Length` above `body_bytes_max`.
    BodyTooLarge,
    /// `Transfer-Encoding` beside `Content-Length`.
    LengthWithCoding,
    /// `Transfer-Encoding` in HTTP/1.0.
    CodingInHttp10,
    /// A `Transfer-Encoding` whose last coding is not chunked, or chunked twice.
    Coding,
    /// A transfer coding this server does not know, before chunked.
    CodingUnknown,
    /// Refused by the parser for a reason the checks above did not name.
    Malformed,
}

impl HeadError {
    /// The status to answer with.
    pub fn status(self) -> u16 {
        self.describe().0
    }

    /// The fault in one clause, for the log and the response.
    pub fn reason(self) -> &'static str {
        self.describe().1
    }

    fn describe(self) -> (u16, &'static str) {
        match self {
            Self::BlankLines => (400, "too many empty lines before the request line"),
            Self::Method => (400, "the method is not a token"),
            Self::MethodTooLong => (501, "the method name is too long"),
            Self::Connect => (501, "CONNECT is not supported: this server is no proxy"),
            Self::Target => (400, "the request target is empty or holds an invalid byte"),
            Self::TargetForm => (400, "the request target has a form its method does not allow"),
            Self::TargetByte => (400, "the request target holds a byte that must be encoded"),
            Self::UriTooLong => (414, "the request target is longer than the limit"),
            Self::Scheme => (400, "the scheme of the request target is not http or https"),
            Self::Authority => (400, "the authority of the request target is invalid"),
            Self::NoVersion => (400, "the request line has no version"),
            Self::Version => (400, "the HTTP version is malformed"),
            Self::VersionUnsupported => (505, "the major HTTP version is not 1"),
            Self::BareLf => (400, "a line ends with LF alone"),
            Self::BareCr => (400, "a CR is not followed by LF"),
            Self::Folded => (400, "a header line begins with white space"),
            Self::NoColon => (400, "a header line has no colon"),
            Self::SpaceBeforeColon => (400, "white space before the colon of a header"),
            Self::EmptyName => (400, "a header has an empty name"),
            Self::Name => (400, "a header name holds an invalid byte"),
            Self::Value => (400, "a header value holds a control byte"),
            Self::PaddedValue => (400, "white space around the value of a header"),
            Self::TooLarge => (431, "the request head is larger than the limit"),
            Self::TooManyHeaders => (431, "the request has more headers than the limit"),
            Self::NoHost => (400, "an HTTP/1.1 request without Host"),
            Self::HostTwice => (400, "more than one Host"),
            Self::Host => (400, "Host is not a host and port"),
            Self::HostDiffers => (400, "Host is not the authority"),
            Self::LengthTwice => (400, "several Content-Length that differ"),
            Self::Length => (400, "Content-Length is not a number"),
            Self::BodyTooLarge => (413, "Content-Length is above the limit"),
            Self::LengthWithCoding => (400, "Content-Length together with Transfer-Encoding"),
            Self::CodingInHttp10 => (400, "Transfer-Encoding in an HTTP/1.0 request"),
            Self::Coding => (400, "Transfer-Encoding does not end in one chunked"),
            Self::CodingUnknown => (501, "an unknown transfer coding"),
            Self::Malformed => (400, "the request head is malformed"),
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for HeadError {}
