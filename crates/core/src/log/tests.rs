use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn output_on(fd: RawFd) -> &'static LogOutput {
    Box::leak(Box::new(LogOutput::new(fd)))
}

/// Writes numbered lines, more than reader and buffer hold, on a thread that must not block.
fn overfill(output: &'static LogOutput, lines: usize) {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        for i in 0..lines {
            output.write(format!("{i:099}\n").as_bytes());
        }
        done.send(()).unwrap();
    });
    ended.recv_timeout(PATIENCE).expect("a line waited for the reader");
}

/// Reads until the lines, in their order, and the notes about dropped ones make up so many; returns how many were dropped.
/// A writing thread that begins late notes them more than once.
fn read_all(reader: impl Read + Send + 'static, all: usize) -> usize {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut lines, mut dropped) = (0, 0);
        let mut input = io::BufRead::lines(io::BufReader::new(reader));
        while lines + dropped < all {
            let line = input.next().unwrap().unwrap();
            match line.split_once("WARN  ") {
                Some((_, note)) => {
                    dropped += note.split(' ').next().unwrap().parse::<usize>().unwrap();
                }
                None => {
                    assert_eq!(line, format!("{:099}", lines + dropped));
                    lines += 1;
                }
            }
        }
        assert_eq!(lines + dropped, all);
        done.send(dropped).unwrap();
    });
    ended.recv_timeout(PATIENCE).expect("not all lines were written or counted")
}

fn assert_keeps_order_and_counts(fd: RawFd, reader: impl Read + Send + 'static) {
    overfill(output_on(fd), 40_000);
    assert!(read_all(reader, 40_000) > 0);
}

#[test]
fn nobody_waits_for_the_reader_of_a_pipe() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    assert_keeps_order_and_counts(writer.as_raw_fd(), File::from(reader));
}

#[test]
fn nobody_waits_for_the_reader_of_a_socket() {
    let (reader, writer) = UnixStream::pair().unwrap();
    assert_keeps_order_and_counts(writer.as_raw_fd(), reader);
}

#[test]
fn a_pipe_that_can_not_be_opened_again_is_written_when_it_has_room() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let output = output_on(writer.as_raw_fd());
    let about = fstat(&writer).unwrap();
    *lock(&output.target) = (about.st_dev as u64, about.st_ino as u64);
    overfill(output, 40_000);
    assert_eq!(output.opened.load(Ordering::Relaxed), -1);
    read_all(File::from(reader), 40_000);
}

#[test]
fn after_the_reader_has_caught_up_lines_are_written_directly() {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let output = output_on(writer.as_raw_fd());
    overfill(output, 40_000);
    read_all(File::from(rustix::io::dup(&reader).unwrap()), 40_000);
    let mut reader = File::from(reader);
    let until = std::time::Instant::now() + PATIENCE;
    while lock(&output.waiting).writing {
        assert!(std::time::Instant::now() < until);
        std::thread::yield_now();
    }
    output.write(b"next\n");
    let mut line = [0; 5];
    reader.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"next\n");
}

#[test]
fn lines_follow_a_redirected_descriptor() {
    let (_first, writer) = rustix::pipe::pipe().unwrap();
    let (second, other) = rustix::pipe::pipe().unwrap();
    let output = output_on(writer.as_raw_fd());
    output.write(b"one\n");
    let mut writer = writer;
    rustix::io::dup2(&other, &mut writer).unwrap();
    output.write(b"two\n");
    let mut line = [0; 4];
    File::from(second).read_exact(&mut line).unwrap();
    assert_eq!(&line, b"two\n");
}

#[test]
fn the_master_of_a_terminal_gets_its_lines() {
    let mut name: [libc::c_char; 64] = [0; 64];
    // SAFETY: a new descriptor, and a name that fits into its buffer.
    let (master, slave) = unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        assert!(master >= 0 && libc::unlockpt(master) == 0);
        assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), name.len()), 0);
        (master, libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY))
    };
    // SAFETY: opened above, and owned by nothing else.
    let slave = unsafe { File::from_raw_fd(slave) };
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(slave), &mut line).unwrap();
        done.send(line).unwrap();
    });
    output_on(master).write(b"a line\n");
    assert_eq!(ended.recv_timeout(PATIENCE).expect("the line went elsewhere"), "a line\n");
}

#[test]
fn a_file_gets_its_lines_at_once() {
    let file = tempfile::tempfile().unwrap();
    let output = output_on(file.as_raw_fd());
    output.write(b"one\n");
    output.write(b"two\n");
    assert_eq!(file.metadata().unwrap().len(), 8);
}

#[test]
fn a_closed_output_stops_nobody() {
    let (reader, writer) = UnixStream::pair().unwrap();
    drop(reader);
    let output = output_on(writer.as_raw_fd());
    output.write(b"one\n");
    assert!(lock(&output.waiting).bytes.is_empty());
}
