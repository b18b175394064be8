# frozen_string_literal: true

require "base64"
require "fileutils"
require "io/nonblock"
require "io/wait"
require "json"
require "tmpdir"

# Headless Chromium, which is driven by its DevTools protocol over two pipes: JSON, each message ended by a zero
# (https://chromedevtools.github.io/devtools-protocol/).
class Browser
  NAMES = %w[chromium chromium-browser].freeze
  # An answer of the browser, whose first one comes after its start on a busy machine.
  ANSWER_S = 60

  # @return [String, nil]
  def self.program
    folders = ENV.fetch("PATH").split(File::PATH_SEPARATOR)
    NAMES.flat_map { |name| folders.map { |folder| File.join(folder, name) } }.find { |path| File.executable?(path) }
  end

  # @return [Array<String>] what scripts and the content policy of the page complained about
  attr_reader :complaints

  def initialize
    @profile = Dir.mktmpdir("chromium")
    theirs, @to = IO.pipe
    @from, answers = IO.pipe
    # Ruby's pipes do not block, and the browser takes that for their end.
    [theirs, answers].each { |io| io.nonblock = false }
    # Without a sandbox of its own, which root and containers do not have: it only sees the page under test.
    @pid = spawn(self.class.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-background-networking", "--no-first-run", "--user-data-dir=#{@profile}",
                 "--remote-debugging-pipe", "about:blank",
                 3 => theirs, 4 => answers, in: File::NULL, out: File::NULL, err: File::NULL, pgroup: true)
    [theirs, answers].each(&:close)
    @number = 0
    @complaints = []
    target = call("Target.createTarget", url: "about:blank")["targetId"]
    @session = call("Target.attachToTarget", targetId: target, flatten: true)["sessionId"]
    %w[Page Runtime Log].each { |domain| call("#{domain}.enable") }
  end

  def open(url) = call("Page.navigate", url: url)

  # @param width [Integer] pixels; below 600 as a phone
  def resize(width, height = 900)
    call("Emulation.setDeviceMetricsOverride", width: width, height: height, deviceScaleFactor: 1, mobile: width < 600)
  end

  def dark(wanted)
    value = wanted ? "dark" : "light"
    call("Emulation.setEmulatedMedia", features: [{ name: "prefers-color-scheme", value: value }])
  end

  # @return [Object] the value of an expression
  def run(script)
    answer = call("Runtime.evaluate", expression: script, returnByValue: true, awaitPromise: true)
    raise "#{script}: #{answer["exceptionDetails"]}" if answer["exceptionDetails"]

    answer["result"]["value"]
  end

  # @return [String] what a person sees of an element
  def text(selector) = run("(document.querySelector(#{selector.to_json}) || {}).innerText || ''")

  def click(selector) = run("document.querySelector(#{selector.to_json}).click()")

  # @param name [String] such as ArrowLeft
  def key(name)
    %w[keyDown keyUp].each { |type| call("Input.dispatchKeyEvent", type: type, key: name, code: name) }
  end

  # Writes a picture of the whole page.
  def picture(path)
    size = call("Page.getLayoutMetrics")["cssContentSize"]
    clip = { x: 0, y: 0, width: size["width"], height: size["height"], scale: 1 }
    shot = call("Page.captureScreenshot", captureBeyondViewport: true, clip: clip)
    File.binwrite(path, Base64.decode64(shot["data"]))
  end

  def close
    Process.kill("KILL", -@pid)
    Process.wait(@pid)
    [@to, @from].each(&:close)
    FileUtils.rm_rf(@profile)
  end

  private

  def call(method, **parameters)
    id = @number += 1
    message = { id: id, method: method, params: parameters, sessionId: @session }.compact
    @to.write(JSON.generate(message), "\0")
    @to.flush
    loop do
      answer = receive
      next note(answer) unless answer["id"] == id
      raise "#{method}: #{answer["error"]}" if answer["error"]

      return answer["result"]
    end
  end

  def receive
    raise "the browser has not answered within #{ANSWER_S} s" unless @from.wait_readable(ANSWER_S)

    JSON.parse(@from.gets("\0").chomp("\0"))
  end

  def note(event)
    case event["method"]
    when "Runtime.exceptionThrown" then @complaints << event["params"]["exceptionDetails"].to_s
    when "Log.entryAdded"
      entry = event["params"]["entry"]
      @complaints << entry["text"] if entry["source"] != "network"
    end
  end
end
