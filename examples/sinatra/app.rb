# frozen_string_literal: true

require "sinatra/base"
require "json"

# A typical Sinatra application: a page, JSON, a form and an error.
class Notes < Sinatra::Base
  set :environment, ENV.fetch("RACK_ENV", "development").to_sym
  set :show_exceptions, false
  set :logging, false
  set :notes, Queue.new

  get("/") { "Hello from Sinatra\n" }

  get "/notes" do
    content_type :json
    { count: settings.notes.size }.to_json
  end

  post "/notes" do
    text = params.fetch("text") { halt 422, "a note needs a text\n" }
    settings.notes << text
    status 201
    "noted: #{text}\n"
  end

  get "/stream" do
    stream { |out| 3.times { |line| out << "line #{line}\n" } }
  end

  not_found { "no such page\n" }
end
