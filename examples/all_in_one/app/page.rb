# frozen_string_literal: true

require "erb"

# The page at "/". It is a single file without external resources.
class Page
  TEMPLATE = ERB.new(File.read(File.join(__dir__, "page.html.erb")))

  def initialize(server)
    @server = server
  end

  def to_s = TEMPLATE.result(binding)

  private

  def h(text) = ERB::Util.html_escape(text)
end
