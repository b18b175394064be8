# frozen_string_literal: true

# The data of the Campfire that is measured: people, a robot, rooms of each kind, messages, boosts, files.
# Run in Campfire's folder, on an empty database.
require File.join(Dir.pwd, "config/environment")

PASSWORD = "a pass phrase"
PEOPLE = 20
ROOMS = 10
MESSAGES = 40
BASE = Time.now.utc.beginning_of_day - 25.days
TEXTS = ["<div>The total of the order is wrong when a <strong>discount</strong> is given twice.</div>",
         "<div>See <a href=\"https://example.org/\">the page</a> about it:</div><ul><li>open</li><li>add</li></ul>",
         "<blockquote>Who has seen it?</blockquote><div>Größe × 2, \u{1F408}</div>",
         "<pre>total = items.sum { |item| item.price * item.count }</pre>",
         "/play tada", "<div>https://example.org/orders?page=3&amp;discount=5</div>", "<div>\u{1F389}</div>"].freeze

admin = FirstRun.create!(name: "Ada Admin", email_address: "admin@example.org", password: PASSWORD)
User.create!(name: "Robot", bot_token: "b" * 12, role: :bot)
people = (1..PEOPLE).map do |number|
  User.create!(name: "Person No#{number}", email_address: "person#{number}@example.org", password: PASSWORD,
               bio: ("Likes tea" if number.even?))
end
everyone = [admin, *people]
Account.first.update!(name: "Chat", join_code: "abcd-efgh-ijkl")

Current.user = admin
rooms = [Room.original,
         *(1..ROOMS).map { |number| Rooms::Open.create!(name: "Room #{number}", creator: people[number]) },
         Rooms::Closed.create_for({ name: "Closed", creator: admin }, users: everyone.first(5)),
         Rooms::Direct.create_for({ creator: admin }, users: [admin, people.first])]
rooms.each do |room|
  members = room.users.without_bots.order(:id).to_a
  MESSAGES.times do |number|
    body = number == MESSAGES / 2 ? "<div>#{number}. discount, see room #{room.id}</div>" : TEXTS[number % TEXTS.size]
    message = room.messages.create!(creator: members[(number * 7) % members.size], body:,
                                    client_message_id: "seed-#{room.id}-#{number}")
    (number % 3).times { |boost| message.boosts.create!(booster: members[boost], content: %w[\u{1F44D} Yes][boost]) }
  end
  file = { io: StringIO.new("Some words.\n" * 100), filename: "notes.txt", content_type: "text/plain" }
  room.messages.first.update!(body: nil, attachment: file)
end
%w[discount order].each { |query| admin.searches.record(query) }

# Spread over the last weeks, so that no two things have the same time.
[Account, User, Room, Message, Boost, Membership, Search, ActionText::RichText, ActiveStorage::Attachment,
 ActiveStorage::Blob].each do |model|
  model.order(:id).each do |record|
    at = BASE + (record.id * 61).minutes
    record.update_columns({ created_at: at, updated_at: at }.slice(*model.column_names.map(&:to_sym)))
  end
end
Membership.update_all(unread_at: nil)

# The cookie of one who has logged in, for requests under load.
session = admin.sessions.start!(user_agent: "bench", ip_address: "127.0.0.1")
jar = ActionDispatch::Request.new(Rails.application.env_config.dup).cookie_jar
jar.signed.permanent[:session_token] = session.token
File.write("#{ENV.fetch("APP_DATABASE")}.cookie", "session_token=#{CGI.escape(jar[:session_token])}")
