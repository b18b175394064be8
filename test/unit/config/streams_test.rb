# frozen_string_literal: true

require_relative "config_case"
require "json"

class StreamsConfigTest < ConfigCase
  # Stands for a class that is there when the file is read.
  class Present < String; end

  def streams(text, given = {}) = plan("streams do\n#{text}\nend", given).streams

  def refused(line) = only_problem("streams do\n#{line}\nend").to_s

  # The section of the engine's document, as JSON brings it there.
  def section(text, outside: "", index: 0)
    plan = plan("#{outside}\nstreams do\n#{text}\nend")
    JSON.parse(plan.engine_document(roles: [:streams], slot: 0, index: index)).fetch("streams")
  end

  def engine(text) = streams(text).routes.first.engine

  def notes(text) = plan("streams do\n#{text}\nend").notes.join("\n")

  def test_without_a_streams_section_there_are_no_streams
    assert_nil load.streams
    assert_equal [:web], load.roles
  end

  def test_the_log_of_a_former_version_stays_the_default
    FileUtils.mkdir_p("#{@root}/storage/streams")
    file = "sqlite://#{@root}/storage/chaton_development_log.db"
    assert_equal file, streams("").broker
    %w[format log.db].each do |mark|
      FileUtils.touch("#{@root}/storage/streams/#{mark}")
      assert_equal "log://#{@root}/storage/streams", streams("").broker
      FileUtils.rm("#{@root}/storage/streams/#{mark}")
    end
    FileUtils.touch(["#{@root}/storage/streams/log.db", file.delete_prefix("sqlite://")])
    assert_equal file, streams("").broker
  end

  def test_defaults
    streams = streams("")
    assert_equal "sqlite://#{@root}/storage/chaton_development_log.db", streams.broker
    log = JSON.parse(streams.log_document)
    assert_equal [8 << 20, 64 << 20, 100_000, 120.0, 10.0, 5.0, 5.0, true, 4, "chaton"],
                 log.values_at("buffer_bytes", "produce_buffer_bytes", "produce_buffer_records", "delivery_timeout_s",
                               "answer_timeout_s", "refused_timeout_s", "linger_ms", "durable", "partitions",
                               "client_id")
    assert_equal [nil, nil, 0.0, nil], log.values_at("username", "compression", "retention_s", "retention_bytes")
    assert_equal [[], [], [], nil, 5.0, 3.0], [streams.routes, streams.topics, streams.load, streams.threads,
                                               streams.produce_timeout_s, streams.flush_timeout_s]
    assert_equal [[], 100, 0.0], section("").values_at("groups", "commit_interval_ms", "broker_statistics_s")
  end

  def test_a_topic_with_all_keywords
    text = <<~RUBY
      topic "events", EventsConsumer, group: "app", batch: 10, batch_bytes: "2M", concurrency: 4, order: :key,
            deserializer: :json, start: :latest, retries: 3, backoff: 0.5, backoff_max: 30, dead_letter: "events.dead",
            delay: 5, expires: 60, on_gap: :stop, throttle: [1000, 2.0], offsets: :manual, protocol: :consumer, partitions: 12,
            replication: 3, settings: { "retention.ms" => 1000, "cleanup.policy" => :compact }
    RUBY
    streams = streams(text)
    route = streams.routes.first
    assert_equal ["events", "EventsConsumer", "app", :json, false], [*route.to_a.first(4), route.transactional?]
    assert_equal({ topic: "events", batch: 10, batch_bytes: 2 << 20, concurrency: 4, order: :key, manual: true,
                   attempts_max: 4, backoff: 0.5, backoff_max: 30.0, dead_letter: "events.dead",
                   delay: 5.0, expires: 60.0, on_gap: :stop, throttle: { records: 1000, per_s: 2.0 },
                   transactional: false }, route.engine)
    assert_equal [["events", 12, 3, { "retention.ms" => "1000", "cleanup.policy" => "compact" }],
                  ["events.dead", nil, nil, {}]], streams.topics.map(&:to_a)
    group = section(text)["groups"].first
    assert_equal [%w[events], "consumer", "latest", 45.0, 300.0, true],
                 group["group"].values_at("topics", "protocol", "start", "session_timeout_s", "max_poll_interval_s",
                                          "read_committed")
    assert_equal "key", group["routes"].first["order"]
  end

  def test_groups_are_counted_as_the_engine_does
    text = "topic 'a', A, group: 'one'\ntopic 'b', B, group: 'two'\ntopic 'c', C, group: 'one'"
    assert_equal %w[A C B], streams(text).routes.map(&:consumer)
    groups = section(text)["groups"]
    assert_equal [%w[a c], %w[b]], groups.map { |group| group["group"]["topics"] }
    assert_equal [%w[a c], %w[b]], groups.map { |group| group["routes"].map { |route| route["topic"] } }
  end

  def test_a_group_setting_of_one_topic_applies_to_all
    groups = section("topic 'a', A, group: 'g'\ntopic 'b', B, group: 'g', start: :latest")["groups"]
    assert_equal "latest", groups.first["group"]["start"]
    assert_match(/"b" has start: :earliest, and its group "g" has :latest at config.chaton.rb:2; a group has one/,
                 refused("topic 'a', A, group: 'g', start: :latest\ntopic 'b', B, group: 'g', start: :earliest"))
    assert_match(/"a" has partitions: 3, and the same topic has 2/,
                 refused("topic 'a', partitions: 2\ntopic 'a', partitions: 3"))
    assert_equal [["a", 2, nil, {}]], streams("topic 'a', A\ntopic 'a', partitions: 2").topics.map(&:to_a)
  end

  def test_classes_in_their_forms
    found = streams("topic 'a', Not::There\ntopic 'b', 'B::C'\ntopic :d, :D\ntopic 'e', StreamsConfigTest::Present\n" \
                    "topic 'f', '::F'\ntopic 'g', Class.new").routes.map(&:consumer)
    assert_equal %w[Not::There B::C D StreamsConfigTest::Present F], found.first(5)
    assert_kind_of Class, found.last
    assert_match(/NameError: uninitialized constant .*Nowhere/, only_problem("streams { }\nNowhere").to_s)
    assert_match(/NoMethodError/, only_problem("streams { broker Nowhere.at_all }").to_s)
    assert_match(/topic "a" needs a consumer class, or its name as a String, not "a b"/, refused("topic 'a', 'a b'"))
    assert_match(/takes a name, a class and keywords, not :more too/, refused("topic 'a', A, :more"))
  end

  def test_without_a_group_it_is_the_tag
    assert_equal [File.basename(@root), "shop"], ["", "tag 'shop'\n"].map { |text|
      plan("#{text}streams { topic 'a', A }").streams.routes.first.group
    }
  end

  def test_order_and_concurrency
    assert_equal :key, engine("topic 'a', A, concurrency: 2")[:order]
    assert_equal :partition, engine("topic 'a', A")[:order]
    assert_match(/order: :key, which needs concurrency: 2 or more/, refused("topic 'a', A, order: :key"))
    assert_match(/one batch runs at a time; write order: :key/,
                 notes("topic 'a', A, concurrency: 2, order: :partition"))
    assert_match(/cannot be transactional with concurrency: 2/,
                 refused("topic 'a', A, concurrency: 2, transactional: true"))
    assert engine("topic 'a', A, transactional: true")[:transactional]
  end

  def test_how_often_something_is_tried
    assert_nil engine("topic 'a', A")[:attempts_max]
    assert_equal 6, engine("topic 'a', A, dead_letter: 'b'")[:attempts_max]
    assert_equal 1, engine("topic 'a', A, dead_letter: 'b', retries: 0")[:attempts_max]
    assert_match(/"a" has retries: but no dead_letter/, notes("topic 'a', A, retries: 2"))
    assert_match(/has itself as its dead_letter/, refused("topic 'a', A, dead_letter: 'a'"))
    assert_match(/a backoff of 70.0 above its backoff_max of 60.0/, refused("topic 'a', A, backoff: 70"))
  end

  def test_one_consumer_in_a_group
    assert_match(/chaton.rb:3: topic "a" has two consumers in group "g" \(the other one is at config.chaton.rb:2\)/,
                 refused("topic 'a', A, group: 'g'\ntopic 'a', B, group: 'g'"))
    assert_match(/in the default group/, refused("topic 'a', A\ntopic 'a', A"))
    assert_equal 2, streams("topic 'a', A, group: 'g'\ntopic 'a', A, group: 'h'").routes.size
  end

  def test_keywords_that_make_no_sense
    { "topic 'a', A, batc: 1" => /topic "a" has no batc:; did you mean batch:\?/,
      "topic 'a', A, batch: 0" => /topic "a" batch: must be a whole number/,
      "topic 'a', A, throttle: [0, 1]" => /throttle: must be records and seconds/,
      "topic 'a', A, deserializer: 7" => /deserializer: must be :json/,
      "topic 'a', A, start: 'middle'" => /must be earliest or latest/,
      "topic 'a', settings: { 'x' => [] }" => /settings: must be names and values/,
      "topic 'a/b', A" => /topic must be a name of at most 249 letters/,
      "topic" => /topic must be a name/,
      "topic 'a', batch: 1, retries: 2" => /"a" has batch:, retries: and no consumer that reads it/,
      "batch 5" => /batch is not an option of all streams; write topic "events", EventsConsumer, batch: …/,
      "brokr 'x'" => /did you mean broker/ }.each { |line, expected| assert_match expected, refused(line), line }
    assert_match(/streams needs a block/, only_problem("streams true").to_s)
    assert_match(/write streams \{ read_committed … \}/, only_problem("read_committed 1").to_s)
  end

  def test_deserializers
    wanted = %w[:json :string :raw nil Avro::Reader StreamsConfigTest.method(:name)]
    lines = wanted.each_with_index.map { |text, index| "topic 't#{index}', A, deserializer: #{text}" }
    assert_equal [:json, :string, nil, nil, "Avro::Reader", StreamsConfigTest.method(:name)],
                 streams(lines.join("\n")).routes.map(&:deserializer)
  end

  def test_addresses
    { "kafka://a:9092,b" => "kafka://a:9092,b", "kafka+ssl://a:1/" => "kafka+ssl://a:1",
      "log:///srv/log" => "log:///srv/log", "log://x" => nil, "sqlite:///srv/a.db" => "sqlite:///srv/a.db",
      "kafka://[::1]:9" => "kafka://[::1]:9" }.each do |url, expected|
      assert_equal expected || "log://#{@root}/x", streams("broker #{url.inspect}").broker
    end
    { "localhost:9092" => %r{: write kafka://localhost:9092}, "storage/x" => %r{: write log://storage/x},
      "ssl://a:1" => %r{: write kafka\+ssl://a:1}, "kafka://" => /must be sqlite:/, "redis://a" => /must be sqlite:/,
      "kafka://me:secret@host:1" => /username and password are options of their own/ }.each do |url, expected|
      found = refused("broker #{url.inspect}")
      assert_match expected, found, url
      refute_match(/secret/, found)
    end
    FileUtils.rm(File.join(@root, "config/chaton.rb"))
    @env["CHATON_BROKER"] = "kafka://127.0.0.1:1"
    assert_equal ["kafka://127.0.0.1:1", [:web]], load.then { |plan| [plan.streams.broker, plan.roles] }
    assert_equal "log:///srv/x", load({ broker: "log:///srv/x" }).streams.broker
  end

  def test_properties_add_up_and_secrets_are_not_shown
    plan = plan("streams do\nkafka 'a.b' => true, c: 1\nkafka 'ssl.key.password' => 'secret1'\npassword 'secret2'\n" \
                "producer_kafka 'acks' => 'all'\nconsumer_kafka 'x.y' => 'secret3'\ntopic 'a', A\nend")
    log = JSON.parse(plan.streams.log_document)
    assert_equal [{ "a.b" => "true", "c" => "1", "ssl.key.password" => "secret1" }, { "acks" => "all" }, "secret2"],
                 log.values_at("properties", "producer_properties", "password")
    assert_equal "secret3", plan.streams.groups.first[:group][:properties]["x.y"]
    refute_match(/secret/, [JSON.generate(plan.to_h), plan.streams.inspect].join)
    refute_match(/secret/, refused("kafka 'A B' => 'secret'"))
  end

  def test_the_log_knows_the_declared_topics
    streams = streams("topic 'a', A, partitions: 3, dead_letter: 'dead'\ntopic 'b', settings: { 'retention.ms' => 5 }")
    undeclared = { "partitions" => nil, "settings" => {} }
    assert_equal({ "a" => { "partitions" => 3, "settings" => {} },
                   "b" => { "partitions" => nil, "settings" => { "retention.ms" => "5" } }, "dead" => undeclared },
                 JSON.parse(streams.log_document)["topics"])
  end

  def test_times_sizes_and_paths
    streams = streams("retention 60\nretention_bytes '1M'\ncompression :zstd\nthreads 2..4\n" \
                      "shutdown_timeout 3\nload 'app/consumers', 'lib/x.rb'\ntls_ca_file 'ca.pem'\n" \
                      "max_poll_interval 10\nsession_timeout 6\ntopic 'a', A")
    assert_equal [60.0, 1 << 20, :zstd, 8 << 20, "#{@root}/ca.pem", 4],
                 streams.log.values_at(:retention_s, :retention_bytes, :compression, :buffer_bytes, :tls_ca_file,
                                       :partitions)
    assert_equal ["#{@root}/app/consumers", "#{@root}/lib/x.rb"], streams.load
    assert_equal [10.0, 6.0], streams.groups.first[:group].values_at(:max_poll_interval_s, :session_timeout_s)
    own = plan("threads 1..9\nstreams { threads 2..4; shutdown_timeout 3 }").of_process([:streams])
    assert_equal [2, 4, 3.0], [own.threads_min, own.threads_max, own.shutdown_timeout_s]
  end

  def test_a_lasting_name_of_each_worker
    sections = [0, 1].map do |index|
      section("static_membership true\ntopic 'a', A", outside: "tag 'my shop'", index: index)
    end
    names = [*sections, section("topic 'a', A")].map { |one| one["groups"].first["group"].fetch("instance_id") }
    assert_nil names.pop
    assert_equal 2, names.uniq.size
    names.each { |name| assert_match(/\A[\w.-]+-my_shop-[01]\z/, name) }
  end

  def test_a_worker_with_a_permanent_name_exits_before_its_successor_starts
    kafka = "broker 'kafka://127.0.0.1:9092'"
    [["static_membership true; #{kafka}", [false, true]], [kafka, [false, false]],
     ["static_membership true", [false, false]]].each do |settings, expected|
      plan = plan("workers web: 1, streams: 1\nstreams { #{settings}; topic 'a', A }")
      assert_equal(expected, [0, 1].map { |index| plan.retires_first?(index) }, settings)
    end
    refute plan("workers web: 1").retires_first?(0)
  end
end
