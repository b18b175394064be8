//! librdkafka alone, by its batch call: what `bin/bench streams` measures Chaton beside.
//!
//! `raw_drain BROKERS TOPIC GROUP RECORDS BATCH` reads so many records and
//! prints one line of JSON: their number, the seconds from the first batch to
//! the last one, and the processor time of the whole process in between.

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, topic, group, records, batch] = &words[..] else {
        eprintln!("usage: raw_drain BROKERS TOPIC GROUP RECORDS BATCH");
        std::process::exit(2);
    };
    let count = |text: &str| text.parse().expect("a number");
    let result = raw::drain(brokers, topic, group, count(records), count(batch));
    println!(
        "{}",
        serde_json::json!({ "count": result.count, "seconds": result.seconds, "cpu_s": result.cpu_s })
    );
}

mod raw {
    use std::ffi::{CStr, CString};
    use std::ptr;
    use std::time::{Duration, Instant};

    use rdkafka_sys as rd;

    /// The value of `RD_KAFKA_PARTITION_UA`.
    const ANY_PARTITION: i32 = -1;
    /// Longest wait for a batch, in ms.
    const WAIT_MS: i32 = 1000;
    /// Longest time without any record.
    const IDLE_MAX: Duration = Duration::from_secs(60);

    pub struct DrainResult {
        pub count: usize,
        pub seconds: f64,
        pub cpu_s: f64,
    }

    pub fn drain(
        brokers: &str,
        topic: &str,
        group: &str,
        records: usize,
        batch: usize,
    ) -> DrainResult {
        let client = consumer(&[
            ("bootstrap.servers", brokers),
            ("group.id", group),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
            ("fetch.queue.backoff.ms", "10"),
        ]);
        let name = CString::new(topic).expect("no NUL");
        // SAFETY: the client lives until the end of this function, the list
        // until it was handed over, and every message is destroyed once.
        unsafe {
            rd::rd_kafka_poll_set_consumer(client);
            let list = rd::rd_kafka_topic_partition_list_new(1);
            rd::rd_kafka_topic_partition_list_add(list, name.as_ptr(), ANY_PARTITION);
            let error = rd::rd_kafka_subscribe(client, list);
            assert_eq!(error, rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
            rd::rd_kafka_topic_partition_list_destroy(list);
            let queue = rd::rd_kafka_queue_get_consumer(client);
            let result = read(queue, records, batch);
            rd::rd_kafka_queue_destroy(queue);
            rd::rd_kafka_consumer_close(client);
            rd::rd_kafka_destroy(client);
            result
        }
    }

    /// # Safety
    /// The queue must be a consumer's.
    unsafe fn read(queue: *mut rd::rd_kafka_queue_t, records: usize, batch: usize) -> DrainResult {
        let mut messages: Vec<*mut rd::rd_kafka_message_t> = vec![ptr::null_mut(); batch];
        let (mut count, mut began, mut cpu_s) = (0, Instant::now(), cpu_now_s());
        let waiting = Instant::now();
        while count < records {
            // SAFETY: there is room for `batch` messages, and each
            // received one is read before it is destroyed.
            unsafe {
                let got =
                    rd::rd_kafka_consume_batch_queue(queue, WAIT_MS, messages.as_mut_ptr(), batch);
                if count == 0 && got > 0 {
                    (began, cpu_s) = (Instant::now(), cpu_now_s());
                }
                for message in &messages[..got.max(0) as usize] {
                    let no_error = rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
                    count += usize::from((**message).err == no_error);
                    rd::rd_kafka_message_destroy(*message);
                }
            }
            assert!(count > 0 || waiting.elapsed() < IDLE_MAX, "no record within {IDLE_MAX:?}");
        }
        DrainResult { count, seconds: began.elapsed().as_secs_f64(), cpu_s: cpu_now_s() - cpu_s }
    }

    fn consumer(settings: &[(&str, &str)]) -> *mut rd::rd_kafka_t {
        let mut why = [0; 512];
        // SAFETY: names and values end in NUL and live through their calls, and the buffer is as long
        // as its given length; the client takes the configuration over.
        unsafe {
            let conf = rd::rd_kafka_conf_new();
            for (name, value) in settings {
                let (name, value) = (CString::new(*name).unwrap(), CString::new(*value).unwrap());
                let set = rd::rd_kafka_conf_set(
                    conf,
                    name.as_ptr(),
                    value.as_ptr(),
                    why.as_mut_ptr(),
                    why.len(),
                );
                let refused = CStr::from_ptr(why.as_ptr());
                assert_eq!(set, rd::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK, "{refused:?}");
            }
            let kind = rd::rd_kafka_type_t::RD_KAFKA_CONSUMER;
            let client = rd::rd_kafka_new(kind, conf, why.as_mut_ptr(), why.len());
            assert!(!client.is_null(), "{:?}", CStr::from_ptr(why.as_ptr()));
            client
        }
    }

    fn cpu_now_s() -> f64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the kernel writes one timespec.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        assert_eq!(failed, 0);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }
}
